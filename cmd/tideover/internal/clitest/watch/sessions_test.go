//go:build unix

package watch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

// limited is a script for a session that waits for an hour.
const limited = `echo "retry after 3600s"; exit 1`

func watchSocket(h *clitest.SessionsEnv, folder string) string {
	return filepath.Join(h.State, "tideover", "watch", folder, "control.sock")
}

// runCommand runs a command to its end, with a long --timeout.
func runCommand(h *clitest.SessionsEnv, args ...string) clitest.Outcome {
	h.T.Helper()
	if !slices.Contains(args, "--timeout") {
		args = append(slices.Clone(args), "--timeout", "1h")
	}
	cmd, _ := clitest.Command(h.T, append([]string{"sessions"}, args...)...)
	return clitest.Finish(h.T, h.Env(cmd))
}

// mustRun runs a command that must succeed, and returns its output.
func mustRun(h *clitest.SessionsEnv, args ...string) string {
	h.T.Helper()
	got := runCommand(h, args...)
	if got.Code != 0 || got.Stderr != "" {
		h.T.Fatalf("tideover sessions %q: code %d, stdout %q, stderr %q", args, got.Code, got.Out, got.Stderr)
	}
	return strings.TrimSpace(got.Out)
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
func serveSessions(h *clitest.SessionsEnv, socket string, scripts map[string]string) *sessionServer {
	t := h.T
	t.Helper()
	k := &sessionServer{t: t}
	runner := &session.Runner{
		Self: clitest.CommandPath(t), Locks: t.TempDir(),
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
	server := httpserver.NewServer(clitest.NewTestAPI(admin.Config{Engine: k.engine, Sessions: k.manager}))
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
	h := clitest.NewSessionsEnv(t)
	k := serveSessions(h, h.ServeSocket(), map[string]string{"night": limited, "day": "exit 0"})
	k.until("night", "waiting")
	k.until("day", "completed")

	list := mustRun(h, "ls")
	for _, part := range []string{"NAME   STATE", "day    completed", "1/10", "0/6", "serve", "retry after 3600s", "1h"} {
		clitest.WantIn(t, "ls", list, part)
	}
	clitest.WantIn(t, "list", mustRun(h, "list"), "night")
	var all struct{ Sessions []clitest.HostedSession }
	if err := json.Unmarshal([]byte(mustRun(h, "ls", "--json")), &all); err != nil || len(all.Sessions) != 2 || all.Sessions[1].In != "serve" ||
		all.Sessions[1].Last.Line != "retry after 3600s" || all.Sessions[1].At != h.ServeSocket() {
		t.Errorf("ls --json: %+v, %v", all, err)
	}
	shown := mustRun(h, "show", "night", "--lines", "2")
	for _, part := range []string{
		"night  waiting  serve at ", "set by      the assistant", "because     rate-limit", "windows     1 of 10", "attempts    0 of 6", "line        retry after 3600s",
		"exit code   1", "policy      ", `output  /logs/x\x1b[2J`, "\n  two \\x1b]0;owned\\x07\n  three",
	} {
		clitest.WantIn(t, "show", shown, part)
	}
	if strings.Contains(shown, "\n  one") {
		t.Errorf("show --lines 2 has more: %q", shown)
	}

	clitest.WantIn(t, "pause", mustRun(h, "pause", "night"), "night paused")
	k.until("night", "paused")
	clitest.WantIn(t, "resume", mustRun(h, "resume", "night"), "night waiting until 20")
	clitest.WantIn(t, "pause --until", mustRun(h, "pause", "night", "--until", "48h"), "(1d23h)")
	if st := k.until("night", "waiting"); st.WaitBy != "human" || !strings.Contains(st.WaitFor, "cli:") {
		t.Errorf("pause --until: %+v", st)
	}
	clitest.WantIn(t, "reset", mustRun(h, "reset", "night", "--json"), `"windows":0`)
	mustRun(h, "wake", "night")
	testwait.Until(t, "a second command", func() bool { return k.until("night", "waiting", "queued", "running").Commands == 2 })
	k.until("night", "waiting")
	mustRun(h, "stop", "night", "--tonight")
	if st := k.until("night", "waiting"); st.Next.Sub(k.manager.Tonight("night")).Abs() > time.Minute {
		t.Errorf("stop --tonight: %+v", st)
	}
	clitest.WantIn(t, "stop", mustRun(h, "stop", "night"), "night stopped")
	clitest.WantIn(t, "stop --tonight of one that is over", runCommand(h, "stop", "night", "--tonight").Stderr, "session night has ended (stopped)")
	mustRun(h, "resume", "night")
	k.until("night", "waiting")
}

func TestSessionsThatCannotBeTold(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	k := serveSessions(h, h.ServeSocket(), map[string]string{"night": limited})
	k.until("night", "waiting")
	for _, c := range []struct {
		name string
		args []string
		code int
		err  string
	}{
		{"one that does not exist", []string{"show", "day"}, cli.CodeUnknown, `no such session: "day"; the only session is night`},
		{"one that is hostile", []string{"stop", "x\x1b[2J"}, cli.CodeUnknown, `no such session: "x\x1b[2J"`},
		{"one that is asked for where it is not", []string{"stop", "day", "--server", "unix:" + h.ServeSocket()}, cli.CodeUnknown, "no such session"},
		{"no name", []string{"stop"}, cli.CodeOwn, "stop: no session given"},
		{"two names", []string{"pause", "night", "day"}, cli.CodeOwn, "want one session"},
		{"not in this state", []string{"resume", "night"}, cli.CodeOwn, "not paused"},
		{"no time", []string{"pause", "night", "--until", "tomorrow"}, cli.CodeOwn, "is not a time: want one such as 07:00"},
		{"a time that is over", []string{"pause", "night", "--until", "2001-01-01T00:00:00Z"}, cli.CodeOwn, "is in the past"},
		{"no time of the day", []string{"pause", "night", "--until", "25:00"}, cli.CodeOwn, "is not a time"},
		{"less than nothing", []string{"show", "night", "--lines", "-1"}, cli.CodeOwn, "--lines: -1 is negative"},
		{"no time for an answer", []string{"ls", "--timeout", "0s"}, cli.CodeOwn, "--timeout: 0s is too short: want more than 0"},
		{"a verb that does not exist", []string{"explode", "night"}, cli.CodeOwn, "unknown command"},
		{"a server that is not there", []string{"ls", "--server", "unix:/nowhere"}, cli.CodeOwn, "no tideover serve at /nowhere"},
		{"over TCP without a token", []string{"ls", "--server", k.tcp}, cli.CodeOwn, "set TIDEOVER_TOKEN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := runCommand(h, c.args...)
			clitest.WantCode(t, got, c.code)
			clitest.WantIn(t, "stderr", got.Stderr, c.err)
		})
	}
	if st := k.until("night", "waiting"); st.WaitBy != "server" {
		t.Errorf("something was changed: %+v", st)
	}
}

func TestSessionsAreWatched(t *testing.T) {
	t.Parallel()
	h := clitest.NewSessionsEnv(t)
	k := serveSessions(h, h.ServeSocket(), map[string]string{"night": limited})
	k.until("night", "waiting")

	cmd, mark := clitest.Command(t, "sessions", "ls", "--watch")
	s := clitest.StartOnTerminal(t, h.Env(cmd), mark)
	s.Expect("retry after 3600s")
	s.Expect("\x1b[3F") // moves up over the three lines of the list, to redraw them
	mustRun(h, "pause", "night")
	s.Expect("paused")
	s.Write("\x03")
	if code := s.Wait(); code != 130 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}

	p := &clitest.Background{T: t, Folder: t.TempDir()}
	p.Cmd, p.Mark = clitest.Command(t, "sessions", "ls", "--watch", "--json")
	out, err := os.Create(filepath.Join(p.Folder, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	h.Env(p.Cmd).Stdout, p.Stderr = out, &p.Errors
	p.Begin()
	printed := func(text string) func() bool {
		return func() bool { b, _ := os.ReadFile(out.Name()); return strings.Contains(string(b), text) }
	}
	testwait.Until(t, "the session", printed(`"state":"paused"`))
	mustRun(h, "resume", "night")
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
	h := clitest.NewSessionsEnv(t)
	serveSessions(h, h.ServeSocket(), map[string]string{"night": limited, "day": "exit 0"})
	serveSessions(h, watchSocket(h, "a"), map[string]string{"noon": limited})
	for line, want := range map[string][]string{
		"show ": {"day", "night", "noon"}, "pause n": {"night", "noon"}, "stop night ": nil, "ls ": nil,
	} {
		words := strings.Split(line, " ")
		// A server that takes long to answer is left out: try again.
		testwait.Until(t, fmt.Sprintf("%q offers %q", line, want), func() bool {
			cmd, _ := clitest.Command(t, append([]string{"__complete", "sessions"}, words...)...)
			return slices.Equal(clitest.Offered(clitest.Finish(t, h.Env(cmd)), "day", "night", "noon"), want)
		})
	}
}
