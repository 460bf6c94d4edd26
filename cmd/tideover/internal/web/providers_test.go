package web

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/pagetest"
	"github.com/tideover/tideover/internal/testwait"
)

// fleet is a gateway whose providers have the states that a test sets.
type fleet struct {
	mu   sync.Mutex
	list []gateway.Status
}

// Status implements [admin.Gateway].
func (f *fleet) Status() []gateway.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list)
}

// Control implements [admin.Gateway].
func (f *fleet) Control(name, action string) error {
	state := map[string]string{gateway.Open: gateway.Opened, gateway.Close: gateway.Up, gateway.Reset: gateway.Up, gateway.Drain: gateway.Draining}[action]
	if state == "" {
		return fmt.Errorf("%w: %q", gateway.ErrUnknownAction, action)
	}
	if !f.change(name, func(st *gateway.Status) {
		st.State, st.Held, st.Recovery, st.Since = state, action == gateway.Close, nil, nil
	}) {
		return fmt.Errorf("%w: %q", gateway.ErrUnknownProvider, name)
	}
	return nil
}

func (f *fleet) change(name string, do func(*gateway.Status)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.list, func(st gateway.Status) bool { return st.Name == name })
	if i >= 0 {
		do(&f.list[i])
	}
	return i >= 0
}

// set replaces all providers.
func (f *fleet) set(list ...gateway.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
}

func (f *fleet) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = slices.DeleteFunc(f.list, func(st gateway.Status) bool { return st.Name == name })
}

// near returns the time that is d from now, in the past if d is negative.
func near(d time.Duration) *time.Time { t := time.Now().Add(d); return &t }

// sick returns the state of a provider that is down, with all fields set.
func sick(name string) gateway.Status {
	return gateway.Status{
		Name: name, Preset: gateway.Anthropic, Format: gateway.Anthropic, BaseURL: "https://api.anthropic.com", Policy: "exponential(1s..2m) jitter=full attempts=6",
		Fallback: []string{"backup", "bedrock"}, State: gateway.Down, Since: near(-65 * time.Second), Breaker: "open", InFlight: 2, Waiting: 9,
		ByClass: map[string]int{"highest": 1, "normal": 6, "lowest": 2}, TTFB: 1.844, Pressure: 0.123, Rate: &gateway.Limits{PerSecond: 0.8333, Adaptive: true, Concurrent: 8},
		Totals: gateway.Totals{Requests: 1000, Attempts: 1290, Sent: 1340, Retries: 330, Succeeded: 990, Failed: 6, Canceled: 4, Throttled: 120, Failovers: 41, Probes: 9, Hedges: 1, Amplified: 1.34},
		Keys: []gateway.KeyInfo{
			{Name: "team-a", InFlight: 2, Score: 1.9}, {Name: "team-b", CoolUntil: near(90 * time.Minute), Reason: "429", Failures: 3, Score: 12.5},
			{Name: "team-c", CoolUntil: near(3 * time.Hour), Reason: "402 insufficient_quota", Failures: 1}, {Name: "team-d", CoolUntil: near(-time.Hour), Reason: "429"},
			{Name: "team-e"}, {Name: "team-f"},
		},
		Recovery: &gateway.Recovery{Next: near(50 * time.Minute), Expected: near(55 * time.Minute), Probes: 3, Outages: 4.25, Predicted: 95},
		Outages: []gateway.Outage{
			{Began: *near(-time.Hour), Ended: *near(-59 * time.Minute), Seconds: 62, Predicted: 50, Probes: 4, Cause: "consecutive"},
			{Began: *near(-30 * time.Hour), Ended: *near(-29 * time.Hour), Seconds: 120, AtLeast: true, Predicted: 200, Probes: 9, Cause: "rate"},
			{Began: *near(-50 * time.Hour), Ended: *near(-50 * time.Hour), Seconds: 0.3, Probes: 1, Cause: "consecutive"},
			{Began: *near(-70 * time.Hour), Ended: *near(-70 * time.Hour), Seconds: 31, Predicted: 30, Probes: 3, Cause: "consecutive"},
		},
		Failovers: []gateway.Failover{
			{Time: *near(-time.Minute), From: name, To: "backup", Why: "down"}, {Time: *near(-2 * time.Minute), From: name, To: "backup", Why: "429 on all keys"},
			{Time: *near(-time.Hour), From: name, To: "bedrock", Why: "503"}, {Time: *near(-time.Hour), From: name, To: "bedrock", Why: "502 bad gateway"},
		},
		Quotas: []gateway.Quota{
			{Name: "requests", Key: "team-a", Limit: 4000, Remaining: 3991, Reset: near(20 * time.Second)},
			{Name: "input-tokens", Key: "team-a", Limit: 400000, Remaining: 71000, Reset: near(31 * time.Second)},
			{Name: "output-tokens", Key: "team-b", Limit: 80000, Remaining: 0, Reset: near(50 * time.Second)}, {Name: "credits", Key: "team-c", Remaining: 12},
		},
		Budgets: []gateway.Budget{{Route: "POST /v1/messages", Tokens: 214.4, Max: 500}, {Route: "GET /v1/models", Tokens: 500, Max: 500}},
	}
}

// fine returns the state of a provider that is up.
func fine(name string) gateway.Status {
	return gateway.Status{
		Name: name, Preset: gateway.OpenAI, Format: gateway.OpenAI, BaseURL: "https://api.openai.com/v1", State: gateway.Up, Breaker: "closed", TTFB: 0.42, InFlight: 3,
		Keys: []gateway.KeyInfo{{Name: "only", InFlight: 3}}, Totals: gateway.Totals{Requests: 40, Attempts: 41, Amplified: 1.025},
	}
}

// providerSite is a site with providers. One that newGatewaySite returns has no engine.
type providerSite struct {
	*testSite
	fleet *fleet
}

func newProviderSite(t *testing.T, list []gateway.Status, change ...func(*setup)) *providerSite {
	t.Helper()
	f := &fleet{list: list}
	return &providerSite{newTestSite(t, append([]func(*setup){func(o *setup) { o.Providers, o.Logger = f, slog.New(slog.DiscardHandler) }}, change...)...), f}
}

// newGatewaySite returns a site without an engine.
func newGatewaySite(t *testing.T, list []gateway.Status) *providerSite {
	t.Helper()
	p := &providerSite{&testSite{T: t}, &fleet{list: list}}
	p.h = newSiteOf(setup{Config: admin.Config{Providers: p.fleet, Version: "test", Logger: slog.New(slog.DiscardHandler)}})
	p.srv = httptest.NewServer(p.h)
	t.Cleanup(func() {
		p.srv.CloseClientConnections()
		p.srv.Close()
	})
	return p
}

// apply applies an action to a provider.
func (p *providerSite) apply(name, action string) {
	p.Helper()
	if a := p.request("POST", "/providers/"+url.PathEscape(name)+"/"+action, url.Values{}); a.to != "/providers?did="+action {
		p.Fatalf("%s: %d to %q: %s", action, a.status, a.to, a.body)
	}
}

func (p *providerSite) state(name string) gateway.Status {
	p.Helper()
	return must(admin.NewProviders(p.fleet, nil).Get(name))
}

func TestProvidersPage(t *testing.T) {
	t.Parallel()
	p := newProviderSite(t, []gateway.Status{fine("openai"), sick("anthropic")})
	body := p.page("/providers")
	has(t, "/providers", body, `aria-current="page">Providers</a>`, "1 up, 1 down.", `id="p-anthropic"`, `<a href="/providers/anthropic">anthropic</a>`, "https://api.anthropic.com",
		"no requests are sent until the next probe", "Next probe <strong><time", "Expected back <time", "<dd>1.84 s</dd>", "<dd>1.34</dd>", "<dd>41</dd>",
		`aria-label="6"`, `width="100.00%"`, "highest", "402 insufficient_quota", "usable again <strong><time", "3991 of 4000 left", `class="fill bad" width="0.00%"`,
		"12 left", "1 min 02 s, ", "predicted 50.0 s", "predicted 1 min 35 s", "at least 2 min", "not predicted", "so far", "429 on all keys", "Details, and 3 more",
		`href="/providers/anthropic/drain" data-dialog`, `class="button danger" href="/providers/anthropic/open"`, "1.02")
	hasNot(t, "/providers", body, "team-f", "502 bad gateway")
	if strings.Index(body, `id="p-anthropic"`) < strings.Index(body, `id="p-openai"`) {
		t.Error("they are not in the order of the configuration")
	}
	has(t, "another page", p.page("/runs"), `<a href="/providers">Providers</a>`)
	has(t, "the stream", p.message("/live/providers"), `hx-target="#live"`, `hx-target="#nav-dead"`, "team-b")
	has(t, "what was done", p.page("/providers?did=open"), "Blocked: no requests are sent to it.")
}

func TestProviderPage(t *testing.T) {
	t.Parallel()
	p := newProviderSite(t, []gateway.Status{fine("openai"), sick("anthropic"), fine("a/b?c")})
	body := p.page("/providers/anthropic")
	has(t, "the page", body, `<h1 class="text">anthropic</h1>`, `aria-current="page">Providers</a>`, "no requests are sent until the next probe", "exponential(1s..2m)",
		`<a class="text" href="/providers/backup">backup</a>, <a class="text" href="/providers/bedrock">bedrock</a>`, "0.833 per second, adaptive; 8 concurrent", "0.12",
		"4.2 outages", "team-f", "402 insufficient_quota", "12.5 s", "predicted 3 min 20 s", ">ongoing</td>", "consecutive", "502 bad gateway", "POST /v1/messages", "214 of 500 left",
		"<dt>requests</dt><dd>1000</dd>", `href="/providers/anthropic/close" data-dialog`)
	has(t, "the stream", p.message("/live/providers/anthropic"), `hx-target="#live"`, "402 insufficient_quota")
	hasNot(t, "one that is up", p.page("/providers/openai"), "Outages", "Failovers", "class=\"next")
	has(t, "one with a strange name", p.page("/providers/a%2Fb%3Fc"), `<h1 class="text">a/b?c</h1>`, `href="/providers/a%2Fb%3Fc/open"`, `connect="/live/providers/a%2Fb%3Fc"`)
	has(t, "its stream", p.message("/live/providers/a%2Fb%3Fc"), "a/b?c")
	for _, path := range []string{"/providers/missing", "/live/providers/missing", "/providers/missing/open", "/providers/openai/explode"} {
		if a := p.request("GET", path, nil); a.status != http.StatusNotFound {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
}

func TestWithoutProviders(t *testing.T) {
	t.Parallel()
	b := newTestSite(t) // has no gateway
	has(t, "no gateway", b.page("/providers"), "There are no providers", "providers:\n  anthropic:\n", "${env:ANTHROPIC_API_KEY}", "docs/gateway.md")
	has(t, "the stream", b.message("/live/providers"), "There are no providers")
	if a := b.request("POST", "/providers/x/open", url.Values{}); a.status != http.StatusNotFound {
		t.Errorf("POST /providers/x/open: %d", a.status)
	}
	has(t, "no providers", newProviderSite(t, nil).page("/providers"), "There are no providers")
}

func TestProviderActions(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := newProviderSite(t, []gateway.Status{sick("anthropic"), fine("openai")}, func(o *setup) {
		o.actor, o.Logger = "alice", slog.New(slog.NewTextHandler(&log, nil))
	})
	has(t, "the question", p.page("/providers/anthropic/open"), "Block anthropic?", `method="post"`, `action="/providers/anthropic/open"`, `href="/providers"`,
		"Requests go to backup, bedrock, or are rejected.", `<button class="danger">Block</button>`)
	has(t, "the question", p.page("/providers/openai/drain"), "Drain openai?", "Requests in flight (3) are finished.", "It has no fallback")
	has(t, "the question", p.page("/providers/openai/close"), "Force openai?", "counts as up even if it fails")
	has(t, "the question", p.page("/providers/openai/reset"), "Reset openai?")
	if st := p.state("anthropic"); st.State != gateway.Down {
		t.Error("the question applied the action")
	}
	for _, c := range []struct{ action, state, offers string }{
		{"", gateway.Down, "reset drain close open"}, {"open", gateway.Opened, "reset close"}, {"close", gateway.Up, "reset drain open"}, {"drain", gateway.Draining, "reset close open"}, {"reset", gateway.Up, "reset drain close open"},
	} {
		if c.action != "" {
			p.apply("anthropic", c.action)
		}
		st := p.state("anthropic")
		var got []string
		for _, o := range providerOffers(&st) {
			got = append(got, o.Name)
		}
		if st.State != c.state || strings.Join(got, " ") != c.offers {
			t.Errorf("after %s: %s, which offers %q, want %s and %q", c.action, st.State, got, c.state, c.offers)
		}
		if want := "action=" + c.action + " by=alice"; c.action != "" && !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q: %s", want, log.String())
		}
	}
	a := p.request("POST", "/providers/anthropic/close", url.Values{}, htmx...)
	if a.status != http.StatusOK || a.head.Get("HX-Trigger") != "done" || !strings.Contains(a.body, "Forced: it counts as up") {
		t.Errorf("in a dialog: %d %s", a.status, a.body)
	}
	has(t, "the page after it", p.page("/providers"), "forced by an operator", "it counts as up even if it fails, until it is reset")
	for path, want := range map[string]int{"/providers/anthropic/explode": 404, "/providers/missing/open": 404, "/providers/missing/explode": 404} {
		for _, method := range []string{"GET", "POST"} {
			a := p.request(method, path, url.Values{}, htmx...)
			if a.status != want {
				t.Errorf("%s %s: %d, want %d", method, path, a.status, want)
			}
			hasNot(t, "the refusal", a.body, "<html")
		}
	}
}

// The pages of providers are updated although a gateway sends no events about its state: they poll.
func TestProviderPagesUpdate(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*providerSite{"with an engine": newProviderSite(t, []gateway.Status{fine("openai")}), "alone": newGatewaySite(t, []gateway.Status{fine("openai")})} {
		t.Run(name, func(t *testing.T) {
			p.h.Pace = 20 * time.Millisecond
			list, one := p.listen("/live/providers"), p.listen("/live/providers/openai")
			hear(t, list, "", `id="p-openai"`, "state up")
			hear(t, one, "", "state up")
			p.fleet.change("openai", func(st *gateway.Status) { st.InFlight = 4711 })
			hear(t, list, "", "<dd>4711</dd>")
			hear(t, one, "", "<dd>4711</dd>")
			p.apply("openai", "drain")
			hear(t, list, "", "state draining")
			hear(t, one, "", "state draining")
			p.fleet.remove("openai")
			hear(t, list, "", "There are no providers")
			hear(t, one, "gone")
		})
	}
}

// A stream sends nothing while the state of the providers does not change.
func TestUnchangedProvidersAreNotSent(t *testing.T) {
	t.Parallel()
	p := newGatewaySite(t, []gateway.Status{fine("openai"), sick("anthropic")})
	p.h.Pace, p.h.Beat = time.Millisecond, 20*time.Millisecond
	p.fleet.change("anthropic", func(st *gateway.Status) { *st = fine("anthropic") })
	m := p.listen("/live/providers")
	hear(t, m, "", `id="p-openai"`)
	for range 3 {
		if n := hear(t, m, "beat"); n > 0 {
			t.Errorf("%d messages, though nothing happened", n)
		}
	}
}

// jitteryGateway is a gateway whose times differ by milliseconds in every call, as those of a real
// gateway do.
type jitteryGateway struct {
	*fleet
	calls atomic.Int64
}

// Status implements [admin.Gateway].
func (f *jitteryGateway) Status() []gateway.Status {
	list := f.fleet.Status()
	late := time.Duration(f.calls.Add(1)%50) * time.Millisecond
	for i := range list {
		since, next := list[i].Since.Add(late), list[i].Recovery.Next.Add(late)
		list[i].Since, list[i].Recovery = &since, &gateway.Recovery{Next: &next, Expected: &next}
	}
	return list
}

func TestSmallTimeDifferencesAreNotSent(t *testing.T) {
	t.Parallel()
	down := sick("anthropic")
	since, next := time.Now().Truncate(time.Second), time.Now().Truncate(time.Second).Add(time.Hour)
	down.Since, down.Recovery.Next = &since, &next
	f := &jitteryGateway{fleet: &fleet{list: []gateway.Status{down}}}
	b := newTestSite(t, func(o *setup) { o.Providers = f })
	b.h.Pace, b.h.Beat = time.Millisecond, time.Hour
	m := b.listen("/live/providers")
	testwait.Until(t, "the page has polled often", func() bool { return f.calls.Load() > 60 })
	if n := len(m); n > 5 {
		t.Errorf("%d messages, though nothing happened", n)
	}
}

func TestProvidersAlone(t *testing.T) {
	t.Parallel()
	p := newGatewaySite(t, []gateway.Status{sick("anthropic")})
	if a := p.request("GET", "/", nil); a.to != "/providers" {
		t.Errorf("GET / leads to %q", a.to)
	}
	body := p.page("/providers")
	has(t, "the page", body, `id="p-anthropic"`, `<a class="brand" href="/providers">`)
	hasNot(t, "the page", body, `href="/runs"`, `href="/dead"`, "nav-dead", "Sessions")
	hasNot(t, "the stream", p.message("/live/providers"), "nav-dead")
	has(t, "the question", p.page("/providers/anthropic/drain"), "Drain anthropic?")
	for _, path := range []string{"/runs", "/dead", "/live/runs", "/sessions", "/nothing"} {
		a := p.request("GET", path, nil)
		if a.status != http.StatusNotFound || !strings.Contains(a.body, "this server has no engine") || !strings.Contains(a.body, `href="/providers" data-close`) {
			t.Errorf("GET %s: %d %s", path, a.status, a.body)
		}
	}
}

// poisoned returns the state of a provider with the text in all fields, except those whose values only
// the gateway chooses.
func poisoned(name, text string) gateway.Status {
	st := sick(name)
	st.Preset, st.Format, st.BaseURL, st.Policy, st.Fallback, st.Breaker = text, text+"x", text, text, []string{text}, text
	st.ByClass = map[string]int{text: 3, "high": 1}
	for i := range st.Keys {
		st.Keys[i].Name, st.Keys[i].Reason = text, text
	}
	for i := range st.Outages {
		st.Outages[i].Cause = text
	}
	for i := range st.Failovers {
		st.Failovers[i].From, st.Failovers[i].To, st.Failovers[i].Why = text, text, text
	}
	for i := range st.Quotas {
		st.Quotas[i].Name, st.Quotas[i].Key = text, text
	}
	for i := range st.Budgets {
		st.Budgets[i].Route = text
	}
	st.Throttles = []gateway.Throttle{{Key: text, Route: text, Model: text, Reason: text, Until: time.Now().Add(time.Hour)}}
	return st
}

func TestHostileProviders(t *testing.T) {
	t.Parallel()
	p := newGatewaySite(t, nil)
	plant := func(text string) {
		p.fleet.set(poisoned("victim", text), poisoned(text, text), gateway.Status{Name: "odd", State: text})
	}
	for _, x := range hostile {
		plant(x.text)
		for _, path := range []string{"/providers", "/providers/victim"} {
			body := p.page(path)
			if n := strings.Count(body, x.shown); n < 10 {
				t.Errorf("%s: %s shows it %d times", x.name, path, n)
			}
		}
	}
	for _, text := range hostileTogether() {
		plant(text)
		p.message("/live/providers")
		p.message("/live/providers/victim")
		own := "/providers/" + url.PathEscape(text)
		for _, path := range []string{own, own + "/open", "/providers/victim/open", "/providers/victim/" + url.PathEscape(text), "/providers?did=" + url.QueryEscape(text)} {
			pagetest.Audit(t, path, p.request("GET", path, nil).body)
			pagetest.Audit(t, path, p.request("POST", path, url.Values{}, htmx...).body)
		}
	}
}

func TestSecretsOfProvidersAreNotShown(t *testing.T) {
	t.Parallel()
	hide := func(o *setup) { o.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") } }
	st := sick("anthropic")
	st.BaseURL, st.Keys[1].Reason, st.Outages[0].Cause, st.Failovers[0].Why = "https://x/hunter2", "401 hunter2", "hunter2", "hunter2"
	st.Quotas[0].Name, st.Budgets[0].Route = "hunter2", "GET /hunter2"
	st.Throttles = []gateway.Throttle{{Key: "one", Route: "GET /hunter2", Model: "hunter2", Reason: "hunter2"}}
	p := newProviderSite(t, []gateway.Status{st}, hide)
	for _, path := range []string{"/providers", "/providers/anthropic"} {
		body := p.page(path)
		hasNot(t, path, body, "hunter2")
		has(t, path, body, "401 ***")
	}
	if p.state("anthropic").Keys[1].Reason != "401 hunter2" {
		t.Error("the gateway's own list was changed")
	}
}

// The page shows rejected keys as rejected, not as throttled.
func TestProvidersWithRejectedKeys(t *testing.T) {
	t.Parallel()
	st := fine("openai")
	st.State, st.Since, st.Why = gateway.Refused, near(-time.Minute), "its keys were rejected (401 hunter2)"
	st.Keys = []gateway.KeyInfo{{Name: "only", CoolUntil: near(4 * time.Minute), Refused: true, Reason: "401"}}
	p := newProviderSite(t, []gateway.Status{st}, func(o *setup) { o.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") } })
	for _, path := range []string{"/providers", "/providers/openai"} {
		body := p.page(path)
		has(t, path, body, "its keys were rejected (401 ***): they are used only for requests that no other target accepts", "rejected, next attempt <strong><time")
		hasNot(t, path, body, "hunter2", "Next key", "usable again")
	}
}

func TestProviderStatesHaveGlyphsAndStyles(t *testing.T) {
	t.Parallel()
	css := string(newGatewaySite(t, nil).request("GET", "/static/page.css", nil).body)
	for _, s := range gateway.States {
		if states[s].Glyph == "" {
			t.Errorf("%s has no glyph", s)
		}
		if !strings.Contains(css, ".state."+s) {
			t.Errorf("%s has no colour", s)
		}
		if admin.ProviderMeaning(&gateway.Status{State: s}) == "" {
			t.Errorf("%s has no meaning", s)
		}
	}
}

func TestOutageBars(t *testing.T) {
	t.Parallel()
	now := time.Now()
	began := now.Add(-30 * time.Second)
	expected := began.Add(70 * time.Second) // the current estimate, which differs from the prediction at the start
	st := gateway.Status{
		State: gateway.Down, Since: &began, Recovery: &gateway.Recovery{Expected: &expected, Predicted: 100, Probes: 2},
		Outages: []gateway.Outage{{Seconds: 50, Predicted: 25}, {AtLeast: true, Seconds: 0.001, Predicted: 0}, {Seconds: 200, Predicted: 1000}, {AtLeast: true}},
	}
	list := outageBars(&st, now)
	want := []outage{
		{Now: true, W: "3.00%", P: "10.00%", Lasted: "30.0 s"}, {W: "5.00%", P: "2.50%", Lasted: "50.0 s"}, {W: "0.60%", P: "0.00%", Lasted: "at least 1 ms"},
		{W: "20.00%", P: "100.00%", Lasted: "3 min 20 s"}, {W: "0.00%", P: "0.00%", Lasted: "unknown"},
	}
	if len(list) != len(want) {
		t.Fatalf("course() = %+v", list)
	}
	for i, w := range want {
		if got := list[i]; got.Now != w.Now || got.W != w.W || got.P != w.P || got.Lasted != w.Lasted {
			t.Errorf("outage %d: %+v, want %+v", i, got, w)
		}
	}
	st.State = gateway.Opened
	if list := outageBars(&st, now); len(list) != 4 || list[0].Now {
		t.Errorf("of a blocked provider: %+v", list)
	}
	if list := outageBars(&gateway.Status{}, now); len(list) != 0 {
		t.Errorf("none: %+v", list)
	}
}
