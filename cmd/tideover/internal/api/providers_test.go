package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"
)

var _ admin.Gateway = (*gateway.Gateway)(nil)

// fleet is a gateway whose providers have the states that a test sets.
type fleet struct {
	mu   sync.Mutex
	list []gateway.Status
	lost bool // makes Control remove all providers
}

// Status implements [admin.Gateway].
func (f *fleet) Status() []gateway.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]gateway.Status(nil), f.list...)
}

// Control implements [admin.Gateway].
func (f *fleet) Control(name, action string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost {
		return fmt.Errorf("%w: %q", gateway.ErrUnknownProvider, name)
	}
	for i := range f.list {
		if st := &f.list[i]; st.Name == name {
			return become(st, action)
		}
	}
	return fmt.Errorf("%w: %q", gateway.ErrUnknownProvider, name)
}

func become(st *gateway.Status, action string) error {
	switch action {
	case gateway.Open:
		st.State, st.Held, st.Breaker = gateway.Opened, false, "forced-open"
	case gateway.Close:
		st.State, st.Held, st.Breaker = gateway.Up, true, "forced-closed"
	case gateway.Reset:
		st.State, st.Held, st.Breaker = gateway.Up, false, "closed"
	case gateway.Drain:
		st.State = gateway.Draining
	default:
		return fmt.Errorf("%w: %q", gateway.ErrUnknownAction, action)
	}
	return nil
}

func moment(text string) *time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return &t
}

// rich returns a provider with all fields set.
func rich() gateway.Status {
	return gateway.Status{
		Name: "claude", Preset: gateway.Anthropic, Format: "anthropic", BaseURL: "https://api.example.com", Policy: "exponential(1s..1m) attempts=6",
		Fallback: []string{"backup"}, State: gateway.Down, Since: moment("2026-11-15T11:59:00Z"), Breaker: "open", InFlight: 2, Waiting: 7,
		ByClass: map[string]int{"high": 4, "low": 3}, Totals: gateway.Totals{Requests: 100, Attempts: 130, Amplified: 1.3, Failovers: 4}, TTFB: 0.84,
		Keys:     []gateway.KeyInfo{{Name: "first", CoolUntil: moment("2026-11-15T12:01:00Z"), Reason: "429", Failures: 2}},
		Recovery: &gateway.Recovery{Next: moment("2026-11-15T12:00:10Z"), Probes: 3, Outages: 5},
		Outages:  []gateway.Outage{{Seconds: 12, Predicted: 10, Probes: 2, Cause: "consecutive"}},
	}
}

// pair starts a server with two providers: one with all fields set, and one with almost none.
func pair(t *testing.T) (*fixture, *fleet) {
	t.Helper()
	f := &fleet{list: []gateway.Status{rich(), {Name: "a/b", State: gateway.Up, Breaker: "closed"}}}
	return serve(t, func(x *fixture, _ *engine.Config) { x.providers = f }), f
}

func TestProvidersAreShown(t *testing.T) {
	t.Parallel()
	f, _ := pair(t)
	all, err := f.client().Providers(t.Context())
	list := all.Providers
	if err != nil || len(list) != 2 || list[0].Name != "claude" || list[1].Name != "a/b" {
		t.Fatalf("Providers() = %+v, %v", list, err)
	}
	st, err := f.client().Provider(t.Context(), "claude")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%+v", asJSON(t, st)), fmt.Sprintf("%+v", asJSON(t, withoutNull(rich()))); got != want {
		t.Errorf("Provider(claude) = %s, want %s", got, want)
	}
	if st, err := f.client().Provider(t.Context(), "a/b"); err != nil || st.State != gateway.Up {
		t.Errorf("one with a slash in its name: %+v, %v", st, err)
	}
	a := f.ask(false, "GET", Prefix+"providers/a%2Fb", "")
	if strings.Contains(a.text, "null") || !strings.Contains(a.text, `"keys":[]`) || !strings.Contains(a.text, `"waiting_by_class":{}`) {
		t.Errorf("lists without anything in them: %s", a.text)
	}
	if a := f.ask(true, "GET", Prefix+"providers", "", "Authorization", "Bearer "+token); a.status != 200 {
		t.Errorf("over TCP: %d %s", a.status, a.text)
	}
	if a := f.ask(true, "GET", Prefix+"providers", ""); a.status != 401 {
		t.Errorf("over TCP without a token: %d %s", a.status, a.text)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestProviderActions(t *testing.T) {
	t.Parallel()
	f, _ := pair(t)
	c := f.client()
	for _, x := range []struct {
		action, state, breaker string
		held                   bool
	}{
		{gateway.Open, gateway.Opened, "forced-open", false},
		{gateway.Close, gateway.Up, "forced-closed", true},
		{gateway.Drain, gateway.Draining, "forced-closed", true},
		{gateway.Reset, gateway.Up, "closed", false},
	} {
		st, err := c.ApplyProvider(t.Context(), "claude", x.action)
		if err != nil || st.State != x.state || st.Breaker != x.breaker || st.Held != x.held || st.Name != "claude" {
			t.Errorf("%s: %+v, %v", x.action, st, err)
		}
		if again, err := c.Provider(t.Context(), "claude"); err != nil || again.State != x.state {
			t.Errorf("after %s: %+v, %v", x.action, again, err)
		}
		if other, err := c.Provider(t.Context(), "a/b"); err != nil || other.State != gateway.Up || other.Breaker != "closed" {
			t.Errorf("%s changed another one: %+v, %v", x.action, other, err)
		}
	}
	if st, err := c.ApplyProvider(t.Context(), "a/b", gateway.Open); err != nil || st.State != gateway.Opened {
		t.Errorf("one with a slash in its name: %+v, %v", st, err)
	}
}

// The log contains the actor of an action on a provider.
func TestProviderActionIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := &fleet{list: []gateway.Status{{Name: "claude", State: gateway.Up}}}
	c := gatewayAlone(t, admin.Config{Providers: f, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if _, err := c.ApplyProvider(t.Context(), "claude", gateway.Drain); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ApplyProvider(t.Context(), "missing", gateway.Drain); err == nil {
		t.Error("an action on an unknown provider succeeded")
	}
	if got, want := log.String(), `level=INFO msg="provider action applied" provider=claude action=drain by=tester was=up is=draining`; !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("the log is %q, want only %q", got, want)
	}
}

func TestProviderActionErrors(t *testing.T) {
	t.Parallel()
	f, gate := pair(t)
	for _, x := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		code                     control.Code
		text                     string
	}{
		{"an unknown provider", "GET", "providers/missing", "", nil, 404, control.CodeNotFound, `no such provider: \"missing\"","hint":"known providers: claude, a/b`},
		{"an action on an unknown provider", "POST", "providers/missing/open", "", nil, 404, control.CodeNotFound, "no such provider"},
		{"an unknown action", "POST", "providers/claude/explode", "", nil, 404, control.CodeNotFound, "no such path"},
		{"the wrong method", "GET", "providers/claude/open", "", nil, 405, control.CodeMethod, "use POST"},
		{"telling all", "POST", "providers", "", nil, 405, control.CodeMethod, "use GET"},
		{"a parameter", "GET", "providers?state=up", "", nil, 400, control.CodeBadRequest, "state"},
		{"a parameter of one", "GET", "providers/claude?x=1", "", nil, 400, control.CodeBadRequest, "unknown parameter"},
		{"a field", "POST", "providers/claude/open", `{"until":"tomorrow"}`, nil, 400, control.CodeBadRequest, "unknown field"},
		{"a body that is no object", "POST", "providers/claude/open", `[]`, nil, 400, control.CodeBadRequest, "not a JSON object"},
		{"an actor with a control character", "POST", "providers/claude/open", "", []string{httpserver.ByHeader, "a\tb"}, 400, control.CodeBadRequest, "printable"},
		{"the page of another site", "POST", "providers/claude/open", "", []string{"Sec-Fetch-Site", "cross-site"}, 403, control.CodeForbidden, "another site"},
	} {
		t.Run(x.name, func(t *testing.T) {
			a := f.ask(false, x.method, Prefix+x.path, x.body, x.header...)
			if p := a.problem(t); a.status != x.status || p.Code != x.code || !strings.Contains(a.text, x.text) {
				t.Errorf("%s %s: %d %s", x.method, x.path, a.status, a.text)
			}
		})
	}
	if st, err := f.client().Provider(t.Context(), "claude"); err != nil || st.State != gateway.Down {
		t.Errorf("something was done: %+v, %v", st, err)
	}
	gate.mu.Lock()
	gate.lost = true
	gate.mu.Unlock()
	_, err := f.client().ApplyProvider(t.Context(), "claude", gateway.Open)
	if p, ok := errors.AsType[*control.Error](err); !ok || p.Status != 404 || !strings.Contains(p.Message, "no such provider") {
		t.Errorf("one that goes away in between: %v", err)
	}
	if _, err := admin.NewProviders(gate, quiet()).Apply("claude", "explode", "x"); err == nil {
		t.Error("an unknown action was done")
	}
}

func TestAServerWithoutProviders(t *testing.T) {
	t.Parallel()
	f := serve(t)
	if a := f.ask(false, "GET", Prefix+"providers", ""); a.status != 200 || strings.TrimSpace(a.text) != `{"providers":[],"config":{}}` {
		t.Errorf("GET providers: %d %s", a.status, a.text)
	}
	for _, x := range [][2]string{{"GET", "providers/x"}, {"POST", "providers/x/open"}, {"POST", "providers/x/reset"}} {
		a := f.ask(false, x[0], Prefix+x[1], "")
		if p := a.problem(t); a.status != 404 || p.Hint != "no providers are defined" {
			t.Errorf("%s %s: %d %s", x[0], x[1], a.status, a.text)
		}
	}
}

// gatewayAlone serves the API without an engine, and returns a client over its
// socket.
func gatewayAlone(t *testing.T, cfg admin.Config) *client.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	unix, err := httpserver.ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httpserver.NewServer(New(newOptions(cfg)))
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(unix) })
	t.Cleanup(func() {
		if err := server.Shutdown(testwait.Context(t)); err != nil {
			t.Error(err)
		}
		serving.Wait()
		_ = os.RemoveAll(dir)
	})
	c, err := client.Dial(client.Target{Server: "unix:" + socket, By: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestAGatewayAlone(t *testing.T) {
	t.Parallel()
	c := gatewayAlone(t, admin.Config{Providers: &fleet{list: []gateway.Status{rich()}}, Logger: quiet()})
	if h, err := c.Healthy(t.Context()); err != nil || !h.OK {
		t.Errorf("Healthy() = %+v, %v", h, err)
	}
	if list, err := c.Providers(t.Context()); err != nil || len(list.Providers) != 1 {
		t.Errorf("Providers() = %+v, %v", list, err)
	}
	if st, err := c.ApplyProvider(t.Context(), "claude", gateway.Reset); err != nil || st.State != gateway.Up {
		t.Errorf("ApplyProvider() = %+v, %v", st, err)
	}
	f := &fixture{t: t, socket: c.Where(), tcp: "localhost"}
	for _, t0 := range new(router).routes() {
		if !t0.needsEngine() {
			continue
		}
		path := strings.ReplaceAll(t0.path, "{id}", "x")
		got := f.ask(false, t0.method, Prefix+path, "")
		if p := got.problem(t); got.status != http.StatusNotFound || p.Status != http.StatusNotFound || p.Code != control.CodeNoEngine || p.Message != "this server has no engine" {
			t.Errorf("%s %s: %d %s", t0.method, path, got.status, got.text)
		}
	}
	if got := f.ask(false, "GET", Prefix+"nothing", ""); got.problem(t).Code != control.CodeNotFound {
		t.Errorf("what there is nowhere: %d %s", got.status, got.text)
	}
}

func TestProviderMeaning(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Minute)
	for _, tt := range []struct {
		st   gateway.Status
		want string
	}{
		{gateway.Status{State: gateway.Up}, "all requests are sent to it"},
		{gateway.Status{State: gateway.Throttled}, "its keys are throttled"},
		{gateway.Status{State: gateway.Throttled, Why: "its keys are throttled (429)"}, "its keys are throttled (429)"},
		{
			gateway.Status{State: gateway.Refused, Why: "its keys were rejected (401)"},
			"its keys were rejected (401): they are used only for requests that no other target accepts",
		},
		{
			gateway.Status{State: gateway.Throttled, Why: "its keys were rejected (401) or throttled (429)"},
			"its keys were rejected (401) or throttled (429)",
		},
		{gateway.Status{State: gateway.Up, Keys: []gateway.KeyInfo{{CoolUntil: &soon, Refused: true}}}, "all requests are sent to it"},
		{gateway.Status{State: gateway.Down, Recovery: &gateway.Recovery{Next: &soon}}, "no requests are sent until the next probe"},
		{gateway.Status{State: gateway.Down, Recovery: &gateway.Recovery{Due: true}}, "the next request is a probe"},
	} {
		if got := admin.ProviderMeaning(&tt.st); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.st, got, tt.want)
		}
	}
}
