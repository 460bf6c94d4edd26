//go:build unix

package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/console/pagetest"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// Commands of sessions.
const (
	limited = `echo "retry after 5400s"; exit 1`
	working = `echo working; cat <&3; printf '\0' >&4` // runs until it is stopped
)

// guardScript replaces the guard, which normally starts the command of a session. To start the test
// binary as the guard of each command would be slow, and these tests are not about the guard. The
// session closes descriptor 3 to stop the command; a NUL on descriptor 4 acknowledges that.
const guardScript = `#!/bin/sh
shift 4
exec "$@"
`

// sessionSite is a site with sessions.
type sessionSite struct {
	*testSite
	manager *session.Manager
}

// newSessionSite returns a site with a session for each script. scripts maps the name of a session to
// its command.
func newSessionSite(t *testing.T, scripts map[string]string, change ...func(*setup)) *sessionSite {
	t.Helper()
	self := filepath.Join(t.TempDir(), "guard")
	testfile.WriteScript(t, self, guardScript)
	d := &sessionSite{testSite: &testSite{T: t}}
	runner := &session.Runner{
		Self: self, Locks: t.TempDir(),
		Open: func(*session.Spec) (session.Streams, error) {
			return session.Streams{Stdout: io.Discard, Stderr: io.Discard, Close: func() error { return nil }}, nil
		},
		Cancel: func(ctx context.Context, run, by string) error { return d.e.Cancel(ctx, run, by) },
	}
	specs, flows := sessionSpecs(t, scripts)
	e, err := engine.Open(t.Context(), engine.Config{
		Dir: t.TempDir(), Durability: engine.OS, Workflows: flows, Handlers: map[string]engine.Handler{session.Handler: runner.Handle},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.manager = &session.Manager{Engine: e}
	d.serve(e, append([]func(*setup){func(o *setup) { o.Sessions = d.manager }}, change...)...)
	if _, err := d.manager.Set(t.Context(), specs, flows); err != nil {
		t.Fatal(err)
	}
	return d
}

func sessionSpecs(t *testing.T, scripts map[string]string) (specs []*session.Spec, flows []*engine.Workflow) {
	t.Helper()
	// The delay of an hour makes sure that a command that crashes is not retried during the test.
	policy, err := retry.Parse("fixed(1h) attempts=6 server-wait=8d server-slack=90s reset-after=10m")
	if err != nil {
		t.Fatal(err)
	}
	// The quiet hours start so late that no session of the test reaches them.
	quiet := &session.Hours{From: time.Now().Add(3 * time.Hour).Format("15:04"), To: time.Now().Add(4 * time.Hour).Format("15:04")}
	for name, script := range scripts {
		s := &session.Spec{Name: name, Start: []string{"sh", "-c", script}, Pack: "generic", Policy: policy, Quiet: quiet}
		flow, err := s.Workflow(nil)
		if err = errors.Join(err, s.Validate()); err != nil {
			t.Fatal(err)
		}
		specs, flows = append(specs, s), append(flows, flow)
	}
	return specs, flows
}

// reach waits until a session has one of the states, and returns its status.
func (d *sessionSite) reach(name string, states ...string) (s session.Status) {
	d.Helper()
	testwait.Until(d, name+" is one of "+strings.Join(states, ", "), func() bool {
		s = must(d.manager.Get(d.Context(), name))
		return slices.Contains(states, s.State)
	})
	return s
}

// apply applies an action to a session.
func (d *sessionSite) apply(name, action string) {
	d.Helper()
	if a := d.request("POST", "/sessions/"+name+"/"+action, url.Values{}); a.to != "/sessions?did="+action {
		d.Fatalf("%s: %d to %q: %s", action, a.status, a.to, a.body)
	}
}

func TestSessionsPage(t *testing.T) {
	t.Parallel()
	d := newSessionSite(t, map[string]string{"night": limited, "day": "exit 0", "busy": working})
	s := d.reach("night", "waiting")
	d.reach("day", "completed")
	d.reach("busy", "running")
	body := d.page("/sessions")
	has(t, "/sessions", body, `aria-current="page">Sessions</a>`, `id="s-night"`, "retry after 5400s", "rate limit", "set by the assistant", "windows 1/10", "attempts 0/6",
		`href="/sessions/night"`, "1 running, 1 waiting, 0 paused, 0 gave up", `<strong><time datetime=`, `>in 1 h `, "Start again",
		`href="/sessions/night/wake" data-dialog`, `class="button danger" href="/sessions/night/stop"`)
	has(t, "another page", d.page("/runs"), `<a href="/sessions">Sessions</a>`)
	has(t, "the stream", d.message("/live/sessions"), `hx-target="#live"`, "retry after 5400s")
	has(t, "the timeline", d.page("/runs/"+s.Run), "session.night")
}

func TestWithoutSessionsThereIsNoPage(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	hasNot(t, "/runs", b.page("/runs"), "Sessions")
	for _, path := range []string{"/sessions", "/live/sessions", "/sessions/x/stop"} {
		if a := b.request("GET", path, nil); a.status != http.StatusNotFound {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
	d := newSessionSite(t, nil)
	has(t, "no sessions yet", d.page("/sessions"), "There are no sessions", "sessions:\n", "{{.Session}}", "tideover watch -- claude -p", "tideover sessions ls")
}

func TestSessionActions(t *testing.T) {
	t.Parallel()
	d := newSessionSite(t, map[string]string{"s": limited, "busy": working}, func(o *setup) { o.actor = "alice" })
	run := d.reach("s", "waiting").Run
	d.reach("busy", "running")

	has(t, "the question", d.page("/sessions/s/pause"), "Pause s?", `method="post"`, `action="/sessions/s/pause"`, `href="/sessions"`)
	if s := d.reach("s", "waiting"); s.WaitBy != "server" {
		t.Error("asking did it")
	}
	d.apply("s", "pause")
	d.reach("s", "paused")
	has(t, "the page after it", d.page("/sessions?did=pause"), "Paused.", `href="/sessions/s/resume"`)
	d.apply("s", "resume")
	d.reach("s", "waiting")
	has(t, "the question", d.page("/sessions/s/tonight"), "Stop s for tonight?", "The session does nothing until")
	d.apply("s", "tonight")
	if s := d.reach("s", "waiting"); s.WaitBy != "human" || s.Next.Sub(d.manager.Tonight("s")).Abs() > time.Minute {
		t.Errorf("stopped for tonight: %+v", s)
	}
	has(t, "who set the wait", d.page("/sessions"), "set by an operator", "postponed by alice")
	has(t, "the question", d.page("/sessions/s/reset"), "attempts (0) and windows (1)")
	d.apply("s", "reset")
	if s := d.reach("s", "waiting"); s.Windows != 0 {
		t.Errorf("reset: %+v", s)
	}
	d.apply("s", "wake")
	testwait.Until(t, "a second command", func() bool { return d.reach("s", "queued", "running", "waiting").Commands == 2 })
	has(t, "the question", d.page("/sessions/busy/stop"), "Stop busy?", `<button class="danger">Stop the session</button>`)
	d.apply("busy", "stop")
	d.reach("busy", "stopped")
	has(t, "the history", d.page("/runs/"+run), "alice", "paused", "resumed")

	a := d.request("POST", "/sessions/busy/stop", url.Values{}, htmx...)
	if a.status != http.StatusConflict {
		t.Errorf("a second time: %d, want 409", a.status)
	}
	hasNot(t, "the refusal", a.body, "<html")
	a = d.request("POST", "/sessions/busy/resume", url.Values{}, htmx...)
	if a.status != http.StatusOK || a.head.Get("HX-Trigger") != "done" || !strings.Contains(a.body, "Resumed.") {
		t.Errorf("in a dialog: %d %s", a.status, a.body)
	}
	d.reach("busy", "running")
	for path, want := range map[string]int{"/sessions/s/explode": 404, "/sessions/missing/stop": 404, "/sessions/missing/explode": 404} {
		for _, method := range []string{"GET", "POST"} {
			if a := d.request(method, path, url.Values{}); a.status != want {
				t.Errorf("%s %s: %d, want %d", method, path, a.status, want)
			}
		}
	}
}

func TestTheSessionsFollow(t *testing.T) {
	t.Parallel()
	d := newSessionSite(t, map[string]string{"s": limited})
	d.reach("s", "waiting")
	m := d.listen("/live/sessions")
	hear(t, m, "", `id="s-s"`, "waiting", "windows 1/10")
	d.apply("s", "pause")
	hear(t, m, "", `state paused`)
	d.apply("s", "resume")
	hear(t, m, "", `state waiting`)
	d.apply("s", "reset")
	hear(t, m, "", "windows 0/10")
}

// Names of sessions can't contain special characters, but the name in a request can be any text.
func TestHostileSessions(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{}
	dir := t.TempDir()
	for i, x := range hostile[:9] { // the texts that are HTML
		name := "h" + string(rune('a'+i))
		text := strings.ReplaceAll(strings.ReplaceAll(x.text, "\x00", ""), "\n", " ")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		scripts[name] = "cat " + filepath.Join(dir, name) + "; exit 1"
	}
	d := newSessionSite(t, scripts)
	for name := range scripts {
		d.reach(name, "waiting")
	}
	body := d.page("/sessions")
	d.message("/live/sessions")
	for _, mark := range []string{"m1&lt;script&gt;", "m2&lt;img", "m3&#34; onmouseover", "m7&lt;/hx-partial", "m8{{.Engine}}", "m9&lt;!--"} {
		has(t, "/sessions", body, mark)
	}
	for _, text := range hostileTogether() {
		for _, path := range []string{"/sessions/" + url.PathEscape(text) + "/stop", "/sessions/ha/" + url.PathEscape(text), "/sessions?did=" + url.QueryEscape(text)} {
			pagetest.Audit(t, path, d.request("GET", path, nil).body)
			pagetest.Audit(t, path, d.request("POST", path, url.Values{}, htmx...).body)
		}
	}
}

func TestSecretsOfSessionsAreNotShown(t *testing.T) {
	t.Parallel()
	hide := func(o *setup) { o.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") } }
	d := newSessionSite(t, map[string]string{"s": `echo "usage of hunter2: limit reached, retry after 5400s"; exit 1`, "dead": `echo hunter2; exit 126`}, hide)
	d.reach("s", "waiting")
	d.reach("dead", "waiting", "gave-up")
	body := d.page("/sessions")
	hasNot(t, "/sessions", body, "hunter2")
	has(t, "/sessions", body, "usage of ***: limit reached")
}

// limitedSessions adds a limit on the screen to each session.
type limitedSessions struct{ *session.Manager }

func (l limitedSessions) List(ctx context.Context) ([]session.Status, error) {
	list, err := l.Manager.List(ctx)
	for i := range list {
		list[i].Limit = screenLimit
	}
	return list, err
}

func (l limitedSessions) Get(ctx context.Context, name string) (session.Status, error) {
	s, err := l.Manager.Get(ctx, name)
	s.Limit = screenLimit
	return s, err
}

var screenLimit = &session.ScreenLimit{
	Reason: "rate-limit", Line: "hunter2 <b> · resets 3am", Until: time.Date(2126, 11, 16, 3, 0, 0, 0, time.UTC), At: time.Date(2026, 11, 15, 23, 0, 0, 0, time.UTC),
}

func TestALimitOnTheScreenOfASessionIsShown(t *testing.T) {
	t.Parallel()
	hide := func(o *setup) { o.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") } }
	d := newSessionSite(t, map[string]string{"s": limited}, hide, func(o *setup) { o.Sessions = limitedSessions{o.Sessions.(*session.Manager)} })
	d.reach("s", "waiting")
	for path, want := range map[string]string{"/sessions": "limit on its screen, still open, until ", "/sessions/s": "the session is still open"} {
		body := d.page(path)
		has(t, path, body, want, "*** &lt;b&gt; · resets 3am")
		hasNot(t, path, body, "hunter2")
	}
}

func TestSessionOffers(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"idle": "", "queued": "pause tonight stop reset", "running": "pause tonight stop reset", "waiting": "wake pause tonight stop reset",
		"paused": "resume wake stop reset", "completed": "resume", "stopped": "resume", "gave-up": "resume", "needs-handler": "pause tonight stop reset",
	} {
		var got []string
		for _, o := range sessionOffers(&session.Status{Name: "s", State: state, Windows: 1}) {
			got = append(got, o.Name)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: offers %q, want %q", state, s, want)
		}
	}
	for _, s := range session.States {
		if states[s].Glyph+pages.Glyph(s) == "" {
			t.Errorf("%s has no glyph", s)
		}
	}
}

func TestSessionPage(t *testing.T) {
	t.Parallel()
	d := newSessionSite(t, map[string]string{"night": limited, "day": "exit 0"}, func(o *setup) {
		o.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
	})
	d.manager.Output = func(string) (string, []string) { return "/logs/night.log", []string{"one", "pass hunter2 \x1b[2J"} }
	s := d.reach("night", "waiting")
	d.reach("day", "completed")
	body := d.page("/sessions/night")
	has(t, "the page", body, `<h1 class="text">night</h1>`, `aria-current="page">Sessions</a>`, "Continues <strong>", "set by the assistant", "1 of 10", "0 of 6",
		"1, of which 0 resumed", `href="/runs/`+s.Run+`"`, "<dt>policy</dt>", "quiet hours", "retry after 5400s", "rate limit", "<dt>exit code</dt><dd>1</dd>",
		"one\npass *** ␛[2J", "/logs/night.log", `id="timeline"`, `fill="url(#hatch)"`, `class="attempts"`, `href="/sessions/night/pause" data-dialog`)
	hasNot(t, "the page", body, "hunter2")
	has(t, "the stream", d.message("/live/sessions/night"), `hx-target="#live"`, "Last lines of output")
	for _, path := range []string{"/sessions/missing", "/live/sessions/missing"} {
		if a := d.request("GET", path, nil); a.status != http.StatusNotFound {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
	has(t, "one that is completed", d.page("/sessions/day/resume"), "Start day again?", ">Start again</button>")
}

// oneSession is a session manager whose list has exactly one session.
type oneSession struct {
	admin.SessionManager
	status session.Status
}

func (o oneSession) List(context.Context) ([]session.Status, error) {
	return []session.Status{o.status}, nil
}

func (o oneSession) Get(context.Context, string) (session.Status, error) { return o.status, nil }

func TestSessionPageListsAssistants(t *testing.T) {
	t.Parallel()
	now := time.Now()
	st := session.Status{
		Name: "shop", State: "running", MaxWindows: 10, MaxAttempts: 6,
		Handover: &session.HandoverStatus{Assistant: "codex", Session: "0b1a", Until: now.Add(4 * time.Hour), Back: now.Add(4*time.Hour + time.Minute)},
		Turns: []session.Turn{
			{Assistant: "claude", From: now.Add(-2 * time.Hour), To: now.Add(-time.Hour), Ended: "rate-limit", Until: now.Add(4 * time.Hour), Line: "limit <b>reached</b>, key PLANTED"},
			{Assistant: "codex", Fallback: true, From: now.Add(-time.Hour)},
		},
	}
	b := newTestSite(t, func(o *setup) {
		o.Sessions = oneSession{status: st}
		o.Redact = func(s string) string { return strings.ReplaceAll(s, "PLANTED", "***") }
	})
	body := b.page("/sessions/shop")
	has(t, "the page", body, "<h2>Assistants</h2>", "Handed over to", "0b1a", `data-label="Assistant" class="text">claude<`, `data-label="Assistant" class="text">codex<`,
		"rate limit until", "limit &lt;b&gt;reached&lt;/b&gt;, key ***", `data-label="To">now<`)
	hasNot(t, "the page", body, "PLANTED")
	has(t, "the list", b.page("/sessions"), `handed over to <span class="text">codex</span>`)
}
