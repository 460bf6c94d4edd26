package web

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
)

// fullSite is the site of a server with all features: providers, relays, notifiers and a configuration
// that was reloaded. A test can add a retry storm.
type fullSite struct {
	*testSite
	fleet *fleet
	cfg   *config.Config

	mu     sync.Mutex
	reload error
	storms []storm.Storm
	relays []nostr.RelayStatus

	isBusy bool // see busy
}

// with returns the site for another test, such as a subtest.
func (g *fullSite) with(t *testing.T) *fullSite {
	g.testSite = g.testSite.with(t)
	return g
}

// update calls change while no page reads the state of the server.
func (g *fullSite) update(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// current returns the value of a field of the site, which update may change concurrently.
func current[T any](g *fullSite, field *T) T {
	g.mu.Lock()
	defer g.mu.Unlock()
	return *field
}

const fullSiteFile = `
version: 1
policies:
  api: exponential(1s..2m) jitter=full attempts=6 total-timeout=15m
  idle: fixed(3s) attempts=2
notify:
  phone: {run: ["true"], on: [gave-up, waiting>30m]}
  pager: {run: ["false"], on: [dead-letter]}
`

func loadConfig(t testing.TB, text string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Source{Data: []byte(text), Environ: []string{"HOME=/"}, Redactor: new(secret.Redactor)})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// settings returns the settings of the configuration, as a real server does.
func (g *fullSite) settings() admin.Settings {
	s := admin.Settings{Policies: g.cfg.Policies, Notifiers: map[string]admin.NotifierSettings{}}
	for name, n := range g.cfg.Notifiers {
		var on []string
		for _, t := range n.On {
			on = append(on, t.String())
		}
		s.Notifiers[name] = admin.NotifierSettings{Kind: n.Kind, On: on}
	}
	s.Reload = admin.Reload{At: time.Now().Add(-90 * time.Second), Err: current(g, &g.reload)}
	return s
}

func newFullSite(t *testing.T, change ...func(*setup)) *fullSite {
	t.Helper()
	g := &fullSite{fleet: &fleet{list: []gateway.Status{fine("openai"), sick("anthropic")}}, cfg: loadConfig(t, fullSiteFile)}
	g.cfg.Server.Data = t.TempDir()
	g.testSite = newTestSite(t, append([]func(*setup){func(o *setup) {
		o.Providers = g.fleet
		o.Data, o.Settings = g.cfg.Server.Data, g.settings
		o.Storms = func() []storm.Storm { return current(g, &g.storms) }
		o.Findings = func() []doctor.Finding {
			return doctor.Folder{Path: g.cfg.Server.Data, Keeps: true}.Check(context.Background())
		}
		o.Relays = func() []nostr.RelayStatus { return current(g, &g.relays) }
		o.Place = func() notify.Place { return notify.Place{Host: "box"} }
	}}, change...)...)
	for name, send := range map[string]func(context.Context, notify.Message) (any, error){
		"phone": func(context.Context, notify.Message) (any, error) { return map[string]bool{"sent": true}, nil },
		"pager": func(context.Context, notify.Message) (any, error) { return nil, errors.New("pager: no subscriber") },
	} {
		flow, err := engine.NewWorkflow("notify."+name, engine.Step("send", send, engine.Policy("fixed(1ms) attempts=2")))
		if err == nil {
			err = g.e.Register(flow)
		}
		if err != nil {
			t.Fatal(err)
		}
		g.w["notify."+name] = flow
	}
	return g
}

func TestOverviewPage(t *testing.T) {
	t.Parallel()
	g := newFullSite(t)
	has(t, "the page before anything happened", g.page("/overview"), `aria-current="page">Overview</a>`, "Nothing is waiting.", "No run has given up.", "no requests are sent", "No run started or ended, and no attempt failed.")
	if err := g.e.SetSchedules(t.Context(), []engine.Schedule{{Name: "yearly", Workflow: "slow", Cron: "0 3 1 1 *"}, {Name: "nightly", Workflow: "quick", Cron: "0 3 * * *"}}); err != nil {
		t.Fatal(err)
	}
	clock := g.page("/overview")
	has(t, "with schedules", clock, `id="d-nightly"`, "0 3 * * *", "by schedule", `<dt>next wake-up</dt><dd><time`)
	hasNot(t, "with schedules", clock, "Nothing is waiting.")
	if strings.Index(clock, "d-nightly") > strings.Index(clock, "d-yearly") {
		t.Error("the schedule that is due first is not the first")
	}
	g.dead(2, job{Error: "418 teapot"})
	wait := g.start("slow", job{Fail: 1, Error: "no route to host"})
	g.until(wait, "waiting")
	g.until(g.start("quick", job{}), "succeeded")
	g.update(func() {
		g.storms = []storm.Storm{{Subject: storm.Subject{Layer: "workflow", Name: "quick<b>"}, Amplification: 3.25, Since: time.Now().Add(-time.Minute)}}
		g.relays = []nostr.RelayStatus{{URL: "wss://relay.example", Error: "dial: refused"}, {URL: "wss://up.example", Up: true}, {URL: "wss://busy.example", Up: true, Trouble: "rate-limited"}}
		g.reload = errors.New("line 3: mistake")
	})
	testwait.Until(t, "the pulse has it", func() bool {
		return strings.Contains(g.page("/overview"), "4 runs started, 1 succeeded and 2 gave up; 7 attempts failed")
	})
	body := g.page("/overview")
	has(t, "/overview", body, `href="/runs/`+wait+`"`, "by policy", "no route to host", "2 runs have given up", "418 teapot", `id="p-anthropic"`,
		"Retry storm", "workflow quick&lt;b&gt; makes 3.2 attempts", "wss://relay.example", "dial: refused", "rate-limited", "was not reloaded", `<dt>succeeded in the last minute</dt>`,
		`<rect class="succeeded"`, `<rect class="dead"`, `role="img" aria-label="in the last 10 minutes 4 runs started, 1 succeeded and 2 gave up; 7 attempts failed"`)
	last := must(g.h.Totals(t.Context(), false)).Last
	then := must(overviewPage{server: g.h.server, findings: &g.h.findings}.load(t.Context(), last.Time))
	if b, _ := then.Data.Body.(overviewBody); b.Pulse.Minute.Succeeded != 1 {
		t.Errorf("at the time of the last event %d runs had succeeded in the last minute, want 1", b.Pulse.Minute.Succeeded)
	}
	hasNot(t, "a provider that is up", body, `id="p-openai"`)
	has(t, "its stream", g.message("/live/overview"), `hx-target="#storms"`, "Retry storm", "418 teapot", `hx-target="#live"`)
	has(t, "another page", g.page("/runs"), "Retry storm")
	g.update(func() { g.storms = nil })
	hasNot(t, "after the storm", g.page("/runs"), "Retry storm")
}

func TestTriesAgain(t *testing.T) {
	t.Parallel()
	one := []engine.AttemptInfo{{Number: 1}}
	two := append(one, engine.AttemptInfo{Number: 2})
	for _, c := range []struct {
		name  string
		steps []engine.StepInfo
		want  bool
	}{
		{"a first attempt", []engine.StepInfo{{Status: "running", Attempts: one}}, false},
		{"the first of a second step", []engine.StepInfo{{Status: "succeeded", Attempts: two}, {Status: "running", Attempts: one}}, false},
		{"a second attempt", []engine.StepInfo{{Status: "succeeded", Attempts: one}, {Status: "running", Attempts: two}}, true},
	} {
		if got := triesAgain(&engine.Info{Steps: c.steps}); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestOverviewWithoutProvidersAndSessions(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	body := b.page("/overview")
	has(t, "/overview", body, "No alerts.", "There are no providers.")
	hasNot(t, "/overview", body, "Relays", "Sessions")
}
