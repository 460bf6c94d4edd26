//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// limited is a script for a session that waits for an hour.
const limited = `echo "retry after 3600s"; exit 1`

// sessionsEnv is a state folder with processes that run sessions.
type sessionsEnv struct {
	t     *testing.T
	state string // for XDG_STATE_HOME
}

func newSessionsEnv(t *testing.T) *sessionsEnv {
	t.Helper()
	state := testfile.ShortDir(t)
	return &sessionsEnv{t, state}
}

func (h *sessionsEnv) serveSocket() string {
	return filepath.Join(h.state, "tideover", "tideover.sock")
}

func (h *sessionsEnv) watchSocket(folder string) string {
	return filepath.Join(h.state, "tideover", "watch", folder, "control.sock")
}

// runCommand runs a command to its end, with a long --timeout.
func (h *sessionsEnv) runCommand(args ...string) outcome {
	h.t.Helper()
	sub, _, err := newSessions(Streams{}).Find(args)
	if err == nil && sub.Flags().Lookup("timeout") != nil && !slices.Contains(args, "--timeout") {
		args = append(slices.Clone(args), "--timeout", "1h")
	}
	cmd, _ := command(h.t, append([]string{"sessions"}, args...)...)
	return finish(h.t, h.env(cmd))
}

func (h *sessionsEnv) env(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = h.state // a folder without a configuration, unless the test writes one
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+h.state, "XDG_CONFIG_HOME="+h.state, "TIDEOVER_CONFIG=", "TIDEOVER_SERVER=", "TIDEOVER_TOKEN=",
		"TZ=UTC", "COLUMNS=", "USER=tester")
	return cmd
}

// mustRun runs a command that must succeed, and returns its output.
func (h *sessionsEnv) mustRun(args ...string) string {
	h.t.Helper()
	got := h.runCommand(args...)
	if got.code != 0 || got.stderr != "" {
		h.t.Fatalf("tideover sessions %q: code %d, stdout %q, stderr %q", args, got.code, got.out, got.stderr)
	}
	return strings.TrimSpace(got.out)
}

// sessionServer runs sessions in this process.
type sessionServer struct {
	t       *testing.T
	engine  *engine.Engine
	manager *session.Manager
	tcp     string
}

// serveSessions runs sessions in this process, with its API at the socket. scripts has the command
// of each session, by its name.
func (h *sessionsEnv) serveSessions(socket string, scripts map[string]string) *sessionServer {
	t := h.t
	t.Helper()
	k := &sessionServer{t: t}
	runner := &session.Runner{
		Self: commandPath(t), Locks: t.TempDir(),
		Open: func(*session.Spec) (session.Streams, error) {
			return session.Streams{Stdout: io.Discard, Stderr: io.Discard, Close: func() error { return nil }}, nil
		},
		Cancel: func(ctx context.Context, run, by string) error { return k.engine.Cancel(ctx, run, by) },
	}
	k.manager = &session.Manager{Output: func(string) (string, []string) {
		return "/logs/x\x1b[2J", []string{"one", "two \x1b]0;owned\x07", "three"}
	}}
	policy, err := retry.Parse(session.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	// The quiet hours end later than any session waits, at any time of day.
	quiet := &session.Hours{From: time.Now().Add(3 * time.Hour).Format("15:04"), To: time.Now().Add(4 * time.Hour).Format("15:04")}
	var specs []*session.Spec
	var flows []*engine.Workflow
	for name, script := range scripts {
		s := &session.Spec{
			Name: name, Start: []string{"sh", "-c", script}, Pack: "generic", Policy: policy, Quiet: quiet,
		}
		flow, err := s.Workflow(nil)
		if err != nil {
			t.Fatal(err)
		}
		specs, flows = append(specs, s), append(flows, flow)
	}
	k.engine, err = engine.Open(t.Context(), engine.Config{
		Dir: t.TempDir(), Durability: engine.OS, Workflows: flows, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]engine.Handler{session.Handler: runner.Handle},
	})
	if err != nil {
		t.Fatal(err)
	}
	k.manager.Engine = k.engine
	if _, err := k.manager.Set(t.Context(), specs, flows); err != nil {
		t.Fatal(err)
	}
	k.listen(socket)
	return k
}

func (k *sessionServer) listen(socket string) {
	k.t.Helper()
	unix, err := httpserver.ListenUnix(socket)
	if err != nil {
		k.t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		k.t.Fatal(err)
	}
	k.tcp = "http://" + tcp.Addr().String()
	server := httpserver.NewServer(newTestAPI(control.Config{Engine: k.engine, Sessions: k.manager}))
	var serving sync.WaitGroup
	for _, l := range []net.Listener{unix, tcp} {
		serving.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				k.t.Error(err)
			}
		})
	}
	k.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := errors.Join(server.Shutdown(ctx), k.engine.Close(ctx))
		serving.Wait()
		if err != nil {
			k.t.Error(err)
		}
	})
}

// until waits until a session is in one of the states.
func (k *sessionServer) until(name string, states ...string) (st session.Status) {
	k.t.Helper()
	testwait.Until(k.t, name+" is one of "+strings.Join(states, ", "), func() bool {
		var err error
		if st, err = k.manager.Get(k.t.Context(), name); err != nil {
			k.t.Fatal(err)
		}
		return slices.Contains(states, st.State)
	})
	return st
}

func TestSessionsAreToldWhatToDo(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	k := h.serveSessions(h.serveSocket(), map[string]string{"night": limited, "day": "exit 0"})
	k.until("night", "waiting")
	k.until("day", "completed")

	list := h.mustRun("ls")
	for _, part := range []string{"NAME   STATE", "day    completed", "1/10", "0/6", "serve", "retry after 3600s", "1h"} {
		wantIn(t, "ls", list, part)
	}
	wantIn(t, "list", h.mustRun("list"), "night")
	var all struct{ Sessions []hostedSession }
	if err := json.Unmarshal([]byte(h.mustRun("ls", "--json")), &all); err != nil || len(all.Sessions) != 2 || all.Sessions[1].In != "serve" ||
		all.Sessions[1].Last.Line != "retry after 3600s" || all.Sessions[1].At != h.serveSocket() {
		t.Errorf("ls --json: %+v, %v", all, err)
	}
	shown := h.mustRun("show", "night", "--lines", "2")
	for _, part := range []string{
		"night  waiting  serve at ", "set by      the assistant", "because     rate-limit", "windows     1 of 10", "attempts    0 of 6", "line        retry after 3600s",
		"exit code   1", "policy      ", `output  /logs/x\x1b[2J`, "\n  two \\x1b]0;owned\\x07\n  three",
	} {
		wantIn(t, "show", shown, part)
	}
	if strings.Contains(shown, "\n  one") {
		t.Errorf("show --lines 2 has more: %q", shown)
	}

	wantIn(t, "pause", h.mustRun("pause", "night"), "night paused")
	k.until("night", "paused")
	wantIn(t, "resume", h.mustRun("resume", "night"), "night waiting until 20")
	wantIn(t, "pause --until", h.mustRun("pause", "night", "--until", "48h"), "(1d23h)")
	if st := k.until("night", "waiting"); st.WaitBy != "human" || !strings.Contains(st.WaitFor, "cli:") {
		t.Errorf("pause --until: %+v", st)
	}
	wantIn(t, "reset", h.mustRun("reset", "night", "--json"), `"windows":0`)
	h.mustRun("wake", "night")
	testwait.Until(t, "a second command", func() bool { return k.until("night", "waiting", "queued", "running").Commands == 2 })
	k.until("night", "waiting")
	h.mustRun("stop", "night", "--tonight")
	if st := k.until("night", "waiting"); st.Next.Sub(k.manager.Tonight("night")).Abs() > time.Minute {
		t.Errorf("stop --tonight: %+v", st)
	}
	wantIn(t, "stop", h.mustRun("stop", "night"), "night stopped")
	wantIn(t, "stop --tonight of one that is over", h.runCommand("stop", "night", "--tonight").stderr, "session night has ended (stopped)")
	h.mustRun("resume", "night")
	k.until("night", "waiting")
}

func TestSessionsThatCannotBeTold(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	k := h.serveSessions(h.serveSocket(), map[string]string{"night": limited})
	k.until("night", "waiting")
	for _, c := range []struct {
		name string
		args []string
		code int
		err  string
	}{
		{"one that does not exist", []string{"show", "day"}, codeNoRun, `no such session: "day"; the only session is night`},
		{"one that is hostile", []string{"stop", "x\x1b[2J"}, codeNoRun, `no such session: "x\x1b[2J"`},
		{"one that is asked for where it is not", []string{"stop", "day", "--server", "unix:" + h.serveSocket()}, codeNoRun, "no such session"},
		{"no name", []string{"stop"}, codeOwn, "stop: no session given"},
		{"two names", []string{"pause", "night", "day"}, codeOwn, "want one session"},
		{"not in this state", []string{"resume", "night"}, codeOwn, "not paused"},
		{"no time", []string{"pause", "night", "--until", "tomorrow"}, codeOwn, "is not a time: want one such as 07:00"},
		{"a time that is over", []string{"pause", "night", "--until", "2001-01-01T00:00:00Z"}, codeOwn, "is in the past"},
		{"no time of the day", []string{"pause", "night", "--until", "25:00"}, codeOwn, "is not a time"},
		{"less than nothing", []string{"show", "night", "--lines", "-1"}, codeOwn, "--lines: -1 is negative"},
		{"no time for an answer", []string{"ls", "--timeout", "0s"}, codeOwn, "--timeout: 0s is too short: want more than 0"},
		{"a verb that does not exist", []string{"explode", "night"}, codeOwn, "unknown command"},
		{"a server that is not there", []string{"ls", "--server", "unix:/nowhere"}, codeOwn, "no tideover serve at /nowhere"},
		{"over TCP without a token", []string{"ls", "--server", k.tcp}, codeOwn, "set TIDEOVER_TOKEN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := h.runCommand(c.args...)
			wantCode(t, got, c.code)
			wantIn(t, "stderr", got.stderr, c.err)
		})
	}
	if st := k.until("night", "waiting"); st.WaitBy != "server" {
		t.Errorf("something was changed: %+v", st)
	}
}

func TestSessionsAreWatched(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	k := h.serveSessions(h.serveSocket(), map[string]string{"night": limited})
	k.until("night", "waiting")

	cmd, mark := command(t, "sessions", "ls", "--watch")
	s := startSession(t, h.env(cmd), mark)
	s.expect("retry after 3600s")
	s.expect("\x1b[3F") // moves up over the three lines of the list, to redraw them
	h.mustRun("pause", "night")
	s.expect("paused")
	s.write("\x03")
	if code := s.wait(); code != 130 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}

	p := &backgroundProcess{t: t, dir: t.TempDir()}
	p.Cmd, p.mark = command(t, "sessions", "ls", "--watch", "--json")
	out, err := os.Create(filepath.Join(p.dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	h.env(p.Cmd).Stdout, p.Stderr = out, &p.stderr
	p.begin()
	printed := func(text string) func() bool {
		return func() bool { b, _ := os.ReadFile(out.Name()); return strings.Contains(string(b), text) }
	}
	testwait.Until(t, "the session", printed(`"state":"paused"`))
	h.mustRun("resume", "night")
	testwait.Until(t, "its change", printed(`"state":"waiting"`))
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	if b, _ := os.ReadFile(out.Name()); strings.Count(string(b), "\n") != 2 {
		t.Errorf("printed %s", b)
	}
}

func TestTheNamesOfSessionsAreCompleted(t *testing.T) {
	t.Parallel()
	h := newSessionsEnv(t)
	h.serveSessions(h.serveSocket(), map[string]string{"night": limited, "day": "exit 0"})
	h.serveSessions(h.watchSocket("a"), map[string]string{"noon": limited})
	for line, want := range map[string][]string{
		"show ": {"day", "night", "noon"}, "pause n": {"night", "noon"}, "stop night ": nil, "ls ": nil,
	} {
		words := strings.Split(line, " ")
		cmd, _ := command(t, append([]string{"__complete", "sessions"}, words...)...)
		got := finish(t, h.env(cmd))
		for _, name := range []string{"day", "night", "noon"} {
			if has := strings.Contains("\n"+got.out, "\n"+name+"\t"); has != slices.Contains(want, name) {
				t.Errorf("%q: offers %s: %v\n%s", line, name, has, got.out)
			}
		}
	}
}
