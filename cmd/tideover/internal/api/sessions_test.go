//go:build unix

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// Commands of sessions. They create the file $SIGNS.begun when they are ready to be stopped, and
// $SIGNS.stopped when they are stopped.
const (
	limited = `echo "retry after 3600s"; exit 1`
	working = `trap 'kill $!; echo > "$SIGNS.stopped"; exit 143' TERM; sleep 3600 & echo > "$SIGNS.begun"; wait`
)

// keeper is a server with sessions.
type keeper struct {
	*fixture
	manager *session.Manager
	signs   string // path prefix of the files that the commands create
}

// keep starts a server with a session for each script. scripts maps the name of a session to its
// command.
func keep(t *testing.T, scripts map[string]string) *keeper {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{signs: filepath.Join(t.TempDir(), "s")}
	runner := &session.Runner{
		Self: self, Locks: t.TempDir(),
		Open: func(*session.Spec) (session.Streams, error) {
			return session.Streams{Stdout: io.Discard, Stderr: io.Discard, Close: func() error { return nil }}, nil
		},
		Cancel: func(ctx context.Context, run, by string) error { return k.engine.Cancel(ctx, run, by) },
	}
	k.manager = &session.Manager{Output: func(name string) (string, []string) {
		return "/logs/" + name, []string{"one", "two"}
	}}
	specs, flows := k.specs(t, scripts)
	k.fixture = serve(t, func(f *fixture, cfg *engine.Config) {
		cfg.Workflows = append(cfg.Workflows, flows...)
		cfg.Handlers = map[string]engine.Handler{session.Handler: runner.Handle}
		cfg.Grace = 2 * session.Grace
		f.sessions = k.manager
	})
	k.manager.Engine = k.engine
	if _, err := k.manager.Set(t.Context(), specs, flows); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *keeper) specs(t *testing.T, scripts map[string]string) (specs []*session.Spec, flows []*engine.Workflow) {
	t.Helper()
	policy, err := retry.Parse(session.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range scripts {
		s := &session.Spec{Name: name, Start: []string{"sh", "-c", script}, Pack: "generic", Policy: policy, Env: map[string]string{"SIGNS": k.signs}, Quiet: soon()}
		flow, err := s.Workflow(nil)
		if err = errors.Join(err, s.Validate()); err != nil {
			t.Fatal(err)
		}
		specs, flows = append(specs, s), append(flows, flow)
	}
	return specs, flows
}

// soon returns quiet hours that start so late that no session of the tests reaches them, at whatever
// time of day the tests run.
func soon() *session.Hours {
	now := time.Now()
	return &session.Hours{From: now.Add(3 * time.Hour).Format("15:04"), To: now.Add(4 * time.Hour).Format("15:04")}
}

// until waits until the API shows one of the states of a session, and returns its status.
func (k *keeper) until(name string, states ...string) (st session.Status) {
	k.t.Helper()
	c := k.client()
	testwait.Until(k.t, fmt.Sprint(name, " ", states), func() bool {
		var err error
		if st, err = c.Session(k.t.Context(), name); err != nil {
			k.t.Fatal(err)
		}
		return slices.Contains(states, st.State)
	})
	return st
}

// sign reports whether a command has created the file with the suffix name.
func (k *keeper) sign(name string) bool {
	_, err := os.Stat(k.signs + "." + name)
	return err == nil
}

func TestSessionsAreShown(t *testing.T) {
	t.Parallel()
	began := time.Now()
	k := keep(t, map[string]string{"night": limited, "day": "exit 0"})
	k.until("night", "waiting")
	k.until("day", "completed")
	list, err := k.client().Sessions(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "day" || list[1].Name != "night" {
		t.Fatalf("Sessions() = %+v, %v", list, err)
	}
	st, err := k.client().Session(t.Context(), "night")
	if err != nil || st.Last == nil || st.Last.Line != "retry after 3600s" || st.Windows != 1 || st.MaxWindows != 10 || st.Spent != 0 || st.MaxAttempts != 6 ||
		st.WaitBy != "server" || st.Next.Before(began.Add(time.Hour)) || st.Log != "/logs/night" || len(st.Tail) != 2 {
		t.Errorf("Session(night) = %+v, %v", st, err)
	}
	a := k.ask(false, "GET", Prefix+"sessions/night", "")
	var raw map[string]any
	if err := json.Unmarshal([]byte(a.text), &raw); err != nil || raw["state"] != "waiting" || raw["max_windows"] != 10.0 {
		t.Errorf("GET sessions/night: %s, %v", a.text, err)
	}
}

func TestAServerWithoutSessions(t *testing.T) {
	t.Parallel()
	f := serve(t)
	if a := f.ask(false, "GET", Prefix+"sessions", ""); a.status != 200 || strings.TrimSpace(a.text) != `{"sessions":[]}` {
		t.Errorf("GET sessions: %d %s", a.status, a.text)
	}
	for _, c := range [][2]string{{"GET", "sessions/x"}, {"POST", "sessions/x/pause"}, {"POST", "sessions/x/stop"}, {"POST", "sessions/x/retry-now"}} {
		a := f.ask(false, c[0], Prefix+c[1], "")
		if p := a.problem(t); a.status != 404 || p.Code != control.CodeNotFound || !strings.Contains(p.Message, "there are no sessions") {
			t.Errorf("%s %s: %d %s", c[0], c[1], a.status, a.text)
		}
	}
}

func TestASessionIsPausedAndGoesOn(t *testing.T) {
	t.Parallel()
	k := keep(t, map[string]string{"s": limited})
	before := k.until("s", "waiting")
	c, ctx := k.client(), t.Context()

	st, err := c.PauseSession(ctx, "s", admin.SessionPause{})
	if err != nil || st.State != "paused" {
		t.Fatalf("PauseSession() = %+v, %v", st, err)
	}
	if _, err := c.PauseSession(ctx, "s", admin.SessionPause{}); control.AsError(err).Code != control.CodeState {
		t.Errorf("a second time: %v", err)
	}
	if st, err = c.ResumeSession(ctx, "s"); err != nil || st.State != "waiting" || !st.Next.Equal(*before.Next) {
		t.Fatalf("ResumeSession() = %+v, %v", st, err)
	}
	if _, err := c.ResumeSession(ctx, "s"); control.AsError(err).Code != control.CodeState {
		t.Errorf("one that is not paused: %v", err)
	}
	until := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	if st, err = c.PauseSession(ctx, "s", admin.SessionPause{Until: until}); err != nil || st.State != "waiting" || !st.Next.Equal(until) || st.WaitBy != "human" {
		t.Fatalf("PauseSession(until) = %+v, %v", st, err)
	}
	if !strings.Contains(st.WaitFor, "tester") {
		t.Errorf("it does not say who: %+v", st)
	}
	if st, err = c.ResetSession(ctx, "s"); err != nil || st.Windows != 0 {
		t.Fatalf("ResetSession() = %+v, %v", st, err)
	}
	if st, err = c.RetrySession(ctx, "s"); err != nil {
		t.Fatalf("RetrySession() = %+v, %v", st, err)
	}
	testwait.Until(t, "a second command", func() bool { st, err = c.Session(ctx, "s"); return err == nil && st.Commands == 2 })
	k.until("s", "waiting")
	if st, err = c.StopSession(ctx, "s", false); err != nil || st.State != "stopped" {
		t.Fatalf("StopSession() = %+v, %v", st, err)
	}
	if st, err = c.ResumeSession(ctx, "s"); err != nil || st.Over() {
		t.Fatalf("ResumeSession() of one that was stopped = %+v, %v", st, err)
	}
}

func TestStopForTonight(t *testing.T) {
	t.Parallel()
	k := keep(t, map[string]string{"a": limited, "b": limited})
	c, ctx := k.client(), t.Context()
	want := k.manager.Tonight("a")
	for name, do := range map[string]func() (session.Status, error){
		"a": func() (session.Status, error) { return c.StopSession(ctx, "a", true) },
		"b": func() (session.Status, error) { return c.PauseSession(ctx, "b", admin.SessionPause{Tonight: true}) },
	} {
		k.until(name, "waiting")
		if st, err := do(); err != nil || st.State != "waiting" || st.Next.Sub(want).Abs() > time.Minute {
			t.Errorf("%s: %+v, %v; want until %v", name, st, err, want)
		}
	}
}

func TestRequestsAboutSessionsAreReadStrictly(t *testing.T) {
	t.Parallel()
	k := keep(t, map[string]string{"s": limited})
	k.until("s", "waiting")
	for _, c := range []struct {
		name, verb, body string
		status           int
		text             string
	}{
		{"both ways", "pause", `{"until":"2199-01-01T00:00:00Z","tonight":true}`, 400, "can't be combined with until"},
		{"no time", "pause", `{"until":"tomorrow"}`, 400, "until: "},
		{"a time that is over", "pause", `{"until":"2001-01-01T00:00:00Z"}`, 400, "is in the past"},
		{"a year that can't be stored", "pause", `{"until":"2999-01-01T00:00:00Z"}`, 400, "2200"},
		{"of another type", "pause", `{"until":7}`, 400, "wrong type"},
		{"null", "pause", `{"until":null}`, 400, "null"},
		{"a name twice", "pause", `{"tonight":true,"tonight":false}`, 400, "twice"},
		{"another spelling", "pause", `{"Tonight":true}`, 400, "unknown field"},
		{"a field of another verb", "stop", `{"until":"2199-01-01T00:00:00Z"}`, 400, "want one of tonight"},
		{"a body for a verb that has none", "resume", `{"tonight":true}`, 400, "unknown field"},
		{"the same", "reset", `{"x":1}`, 400, "unknown field"},
		{"a limit for no reason", "limit", `{"line":"x"}`, 400, "want rate-limit or terminal"},
		{"a limit without a screen", "limit", `{"reason":"rate-limit","line":"x"}`, 409, "has no command on a terminal"},
		{"no JSON", "stop", `{`, 400, "not a JSON object"},
		{"a query", "stop?tonight=true", "", 400, "tonight"},
		{"no such verb", "explode", "", 404, "no such path"},
	} {
		a := k.ask(false, "POST", Prefix+"sessions/s/"+c.verb, c.body)
		if p := a.problem(t); a.status != c.status || !strings.Contains(p.Error(), c.text) {
			t.Errorf("%s: %d %s, want %d with %q", c.name, a.status, a.text, c.status, c.text)
		}
	}
	for path, want := range map[string]int{"sessions/missing": 404, "sessions/%1b%5b2J": 404, "sessions?x=1": 400, "sessions/s/pause": 405} {
		if a := k.ask(false, "GET", Prefix+path, ""); a.status != want {
			t.Errorf("GET %s: %d %s, want %d", path, a.status, a.text, want)
		}
	}
	if st := k.until("s", "waiting"); st.WaitBy != "server" {
		t.Errorf("something was changed: %+v", st)
	}
}

// The guard protects the routes of sessions, too.
func TestSessionsAreGuarded(t *testing.T) {
	t.Parallel()
	k := keep(t, map[string]string{"s": limited})
	k.until("s", "waiting")
	bearer := []string{"Authorization", "Bearer " + token}
	for _, c := range []struct {
		name   string
		method string
		path   string
		header []string
		want   int
	}{
		{"no token", "GET", "sessions", nil, http.StatusUnauthorized},
		{"no token for a change", "POST", "sessions/s/stop", nil, http.StatusUnauthorized},
		{"another host", "GET", "sessions", append([]string{"Host", "evil.example"}, bearer...), http.StatusMisdirectedRequest},
		{"another site's page", "POST", "sessions/s/stop", append([]string{"Sec-Fetch-Site", "cross-site"}, bearer...), http.StatusForbidden},
		{"a name that is none", "POST", "sessions/s/stop", append([]string{httpserver.ByHeader, strings.Repeat("x", 65)}, bearer...), http.StatusBadRequest},
		{"with a token", "GET", "sessions", bearer, http.StatusOK},
	} {
		if a := k.ask(true, c.method, Prefix+c.path, "", c.header...); a.status != c.want {
			t.Errorf("%s: %d, want %d: %s", c.name, a.status, c.want, a.text)
		}
	}
	if st := k.until("s", "waiting"); st.WaitBy != "server" {
		t.Errorf("something was changed: %+v", st)
	}
}
