//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// inProcessServer is a server in this process. Commands are separate processes that connect to it.
type inProcessServer struct {
	t       *testing.T
	engine  *engine.Engine
	server  *http.Server
	serving sync.WaitGroup
	state   string // for XDG_STATE_HOME
	tcp     string
	gate    chan struct{}
}

type order struct {
	Fail string `json:"fail"` // error of the step; empty means success
}

func (s *inProcessServer) gated(ctx context.Context, _ json.RawMessage) (string, error) {
	select {
	case <-s.gate:
		return "through", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// fails is a step that fails if its input has an error.
func fails(_ context.Context, o order) (string, error) {
	if o.Fail != "" {
		return "", errors.New(o.Fail)
	}
	return "well", nil
}

// stumbles is a step that fails in its first attempt and succeeds in its second.
func stumbles(ctx context.Context, _ json.RawMessage) (string, error) {
	if t, _ := engine.TaskOf(ctx); t.Attempt == 1 {
		return "", errors.New("stumbled")
	}
	return "arrived", nil
}

func newInProcessServer(t *testing.T) *inProcessServer {
	t.Helper()
	s := &inProcessServer{t: t, gate: make(chan struct{})}
	var flows []*engine.Workflow
	for name, parts := range map[string][]engine.Part{
		"echo":    {engine.Step("say", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil })},
		"fails":   {engine.Step("do", fails, engine.Policy("fixed(1ms) attempts=2"))},
		"stumble": {engine.Step("go", stumbles, engine.Policy("fixed(1ms) attempts=4"))},
		"slow":    {engine.Step("go", stumbles, engine.Policy("fixed(1h) attempts=4"))},
		"gate":    {engine.Step("wait", s.gated)},
		"two": {
			engine.Step("first", fails, engine.Policy("fixed(0s) attempts=1")),
			engine.Step("second", fails, engine.After("first"), engine.WithPolicy(retry.Policy{})),
		},
	} {
		w, err := engine.NewWorkflow(name, parts...)
		if err != nil {
			t.Fatal(err)
		}
		flows = append(flows, w)
	}
	flows = append(flows, quest)
	var err error
	if s.state, err = os.MkdirTemp("", "cli"); err != nil {
		t.Fatal(err)
	}
	s.engine, err = engine.Open(t.Context(), engine.Config{
		Dir: filepath.Join(s.state, "data"), Durability: engine.OS, Workflows: flows, Logger: slog.New(slog.DiscardHandler), Grace: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.close()
		if err := s.engine.Close(context.Background()); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(s.state)
	})
	s.listen()
	return s
}

func (s *inProcessServer) socket() string { return filepath.Join(s.state, "tideover", "tideover.sock") }

func (s *inProcessServer) listen() {
	s.t.Helper()
	unix, err := httpserver.ListenUnix(s.socket())
	if err != nil {
		s.t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.tcp = "http://" + tcp.Addr().String()
	server := httpserver.NewServer(clitest.NewTestAPI(admin.Config{
		Engine: s.engine, Version: "v0.0.1", CallbackKey: secret.New("the key of these tests"), Place: func() notify.Place { return notify.Place{Page: s.tcp} },
	}))
	s.server = server
	for _, l := range []net.Listener{unix, tcp} {
		s.serving.Go(func() { _ = server.Serve(l) })
	}
}

func (s *inProcessServer) close() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		s.t.Errorf("shutdown: %v", err)
	}
	s.serving.Wait()
}

// env sets variables with which the command finds the server at its default place, and returns the
// command.
func (s *inProcessServer) env(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+s.state, "TIDEOVER_SERVER=", "TIDEOVER_TOKEN=", "TZ=UTC", "COLUMNS=", "USER=tester")
	return cmd
}

// runCommand runs a command to its end.
func (s *inProcessServer) runCommand(args ...string) clitest.Outcome {
	s.t.Helper()
	cmd, _ := clitest.Command(s.t, args...)
	return clitest.Finish(s.t, s.env(cmd))
}

// mustRun runs a command that must succeed, and returns its output.
func (s *inProcessServer) mustRun(args ...string) string {
	s.t.Helper()
	got := s.runCommand(args...)
	if got.Code != 0 {
		s.t.Fatalf("tideover %q: code %d, stdout %q, stderr %q", args, got.Code, got.Out, got.Stderr)
	}
	return strings.TrimSpace(got.Out)
}

// background starts a command. output returns what the command has printed so far.
func (s *inProcessServer) background(args ...string) (p *clitest.Background, output func() string) {
	s.t.Helper()
	p = &clitest.Background{T: s.t, Folder: s.t.TempDir()}
	p.Cmd, p.Mark = clitest.Command(s.t, args...)
	s.env(p.Cmd)
	name := filepath.Join(p.Folder, "out")
	out, err := os.Create(name)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = out.Close() })
	p.Stdout, p.Stderr = out, &p.Errors
	p.Begin()
	return p, func() string { text, _ := os.ReadFile(name); return string(text) }
}

// until waits until lists show the run in this state.
func (s *inProcessServer) until(id, state string) {
	s.t.Helper()
	testwait.Until(s.t, id+" "+state, func() bool {
		page, err := s.engine.List(s.t.Context(), engine.Filter{States: []string{state}, Limit: 1000})
		for _, r := range page.Runs {
			if r.ID == id {
				return true
			}
		}
		return err != nil
	})
}

// waitForEnd waits until a run has ended and lists show that. It returns the state of the run.
func (s *inProcessServer) waitForEnd(id string) string {
	s.t.Helper()
	info, err := s.engine.Wait(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	s.until(id, info.State)
	return info.State
}

func TestRunWaitsAndTellsHowItEnded(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte(`{"from":"file"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		out  string
		err  string
	}{
		{"the output is printed", []string{"echo", "--input", `{"a":1}`, "--wait"}, 0, `{"a":1}` + "\n", ""},
		{"an input from a file", []string{"echo", "--input", "@" + file, "-w"}, 0, `{"from":"file"}` + "\n", ""},
		{"an input from standard input", []string{"echo", "--input", "-", "--wait"}, 0, `["stdin"]` + "\n", ""},
		{"no input", []string{"echo", "--wait"}, 0, "null\n", ""},
		{"an output that would like to be more", []string{"echo", "--input", "\"\u009b2J\u202e\"", "--wait"}, 0, `"\u009b2J\u202e"` + "\n", ""},
		{"a dead run", []string{"fails", "--input", `{"fail":"boom"}`, "--wait"}, 1, "", "is dead: boom"},
		{"a dead run as JSON", []string{"fails", "--input", `{"fail":"boom"}`, "--wait", "--json"}, 1, `"backoffHistory":[1]`, ""},
		{"one that succeeded as JSON", []string{"echo", "--wait", "--json"}, 0, `"state":"succeeded"`, ""},
		{"how often it was attempted", []string{"stumble", "--wait", "--json"}, 0, `"attempts":2,"output":"arrived"`, ""},
		{"no output as JSON", []string{"echo", "--wait", "--json"}, 0, `"attempts":1,"output":null`, ""},
		{"one that takes too long", []string{"gate", "--timeout", "50ms", "--wait"}, 1, "", "Operation timed out after 50ms"},
		{"followed", []string{"stumble", "--follow"}, 0, "Retry 1/3 after error: stumbled\n", ""},
		{"followed to a bad end", []string{"fails", "--input", `{"fail":"a\u001b[1mb"}`, "-f"}, 1, `Retry 1/1 after error: a\x1b[1mb` + "\n", ""},
		{"followed as JSON", []string{"stumble", "--follow", "--json"}, 0, `"kind":"waiting"`, ""},
		{"followed, and the output", []string{"stumble", "--follow", "--wait"}, 0, `"arrived"` + "\n", "Retry 1/3 after error: stumbled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd, _ := clitest.Command(t, append([]string{"run"}, c.args...)...)
			cmd.Stdin = strings.NewReader(`["stdin"]`)
			got := clitest.Finish(t, s.env(cmd))
			clitest.WantCode(t, got, c.code)
			clitest.WantIn(t, "stdout", got.Out, c.out)
			clitest.WantIn(t, "stderr", got.Stderr, c.err)
		})
	}
}

func TestWhatCannotBePrintedIsAnError(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer full.Close()
	for _, args := range [][]string{
		{"run", "stumble", "--follow"}, {"run", "stumble", "--follow", "--json"}, {"run", "fails", "--input", `{"fail":"x"}`, "--follow"},
		{"run", "echo"}, {"run", "echo", "--wait"}, {"run", "echo", "--wait", "--json"}, {"run", "fails", "--input", `{"fail":"x"}`, "--wait", "--json"},
		{"run", "stumble", "--follow", "--wait"}, {"runs"}, {"status"},
	} {
		cmd, _ := clitest.Command(t, args...)
		cmd.Stdout = full
		got := clitest.Finish(t, s.env(cmd))
		clitest.WantCode(t, got, CodeOwn)
		clitest.WantIn(t, fmt.Sprint(args, " stderr"), got.Stderr, "no space left on device")
	}
	// The reader of standard output is gone.
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	defer out.Close()
	cmd, _ := clitest.Command(t, "run", "stumble", "--follow")
	cmd.Stdout = out
	if got := clitest.Finish(t, s.env(cmd)); got.Code != 128+int(syscall.SIGPIPE) || got.Stderr != "" {
		t.Errorf("into a pipe that is closed: %+v", got)
	}
	// The result is printed even if the events can't be written.
	cmd, _ = clitest.Command(t, "run", "stumble", "--follow", "--wait")
	cmd.Stderr = full
	if result, err := s.env(cmd).Output(); err != nil || string(result) != "\"arrived\"\n" {
		t.Errorf("with nowhere to tell it: %q, %v", result, err)
	}
}

func TestRunsThatAreNotStarted(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	for _, c := range []struct {
		name string
		args []string
		err  string
	}{
		{"no workflow", nil, "run: no workflow given"},
		{"a timeout of zero", []string{"echo", "--timeout", "0s"}, "--timeout: "},
		{"a negative timeout", []string{"echo", "--timeout", "-1s"}, "--timeout: "},
		{"no unit", []string{"echo", "--timeout", "5"}, "--timeout: "},
		{"two timeouts", []string{"echo", "--timeout", "5s", "--timeout", "6s"}, "given twice: give it once"},
		{"no JSON", []string{"echo", "--input", "text"}, "put a string in double quotes"},
		{"no file", []string{"echo", "--input", "@/nowhere"}, "--input: open /nowhere"},
		{"both times", []string{"echo", "--in", "1h", "--at", "2030-01-01T00:00:00Z"}, "give one of them"},
		{"a bad time", []string{"echo", "--at", "tomorrow"}, "--at: "},
		{"a bad server", []string{"echo", "--server", "localhost"}, "--server: "},
		{"a key of two lines", []string{"echo", "--key", "a\nb"}, `--key: "a\nb" has a control character in it`},
		{"a key that is not UTF-8", []string{"echo", "--key", "a\xff"}, "--key: is not UTF-8"},
		{"a key that is too long", []string{"echo", "--key", strings.Repeat("x", 513)}, "--key: has 513 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd, _ := clitest.Command(t, append([]string{"run"}, c.args...)...)
			got := clitest.Finish(t, s.env(cmd))
			clitest.WantCode(t, got, CodeOwn)
			clitest.WantIn(t, "stderr", got.Stderr, c.err)
			if got.Out != "" {
				t.Errorf("stdout %q", got.Out)
			}
		})
	}
	t.Cleanup(func() {
		if stats, err := s.engine.Stats(context.Background()); err != nil || len(stats.Workflows) > 0 {
			t.Errorf("something was started: %+v, %v", stats, err)
		}
	})
}

func TestAServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"run", "echo"}, {"runs"}, {"runs", "--watch"}, {"show", "x"}, {"retry", "x"}, {"cancel", "x"}, {"wake", "x"}, {"signal", "x", "y"}, {"callback", "x", "y"}, {"approve", "x"}, {"reject", "x", "y"}, {"answer", "x", "y"}, {"dead"},
		{"events", "-f"}, {"workflows"}, {"schedules"}, {"status"}, {"backup", "x"}, {"retry", "--dead"},
	} {
		cmd, _ := clitest.Command(t, args...)
		cmd.Env = append(cmd.Env, "XDG_STATE_HOME=/nowhere", "TIDEOVER_SERVER=")
		got := clitest.Finish(t, cmd)
		clitest.WantCode(t, got, CodeOwn)
		if want := "tideover: no tideover serve at /nowhere/tideover/tideover.sock: start one with `tideover serve`, or name another with --server\n"; got.Stderr != want {
			t.Errorf("%q: stderr %q, want %q", args, got.Stderr, want)
		}
	}
}

func TestTheServerMayBeNamed(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	for _, c := range []struct {
		name string
		args []string
		env  []string
		code int
		err  string
	}{
		{"by its default place", nil, nil, 0, ""},
		{"by a variable", nil, []string{"XDG_STATE_HOME=/nowhere", "TIDEOVER_SERVER=unix:" + s.socket()}, 0, ""},
		{"by a flag, which counts more", []string{"--server", "unix:" + s.socket()}, []string{"TIDEOVER_SERVER=unix:/nowhere"}, 0, ""},
		{"over TCP", []string{"--server", s.tcp}, []string{"TIDEOVER_TOKEN=" + clitest.TestToken}, 0, ""},
		{"over TCP without a token", []string{"--server", s.tcp}, nil, CodeOwn, "set TIDEOVER_TOKEN"},
		{"over TCP with another token", []string{"--server", s.tcp}, []string{"TIDEOVER_TOKEN=wrong"}, CodeOwn, "set TIDEOVER_TOKEN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd, _ := clitest.Command(t, append([]string{"status"}, c.args...)...)
			s.env(cmd).Env = append(cmd.Env, c.env...)
			got := clitest.Finish(t, cmd)
			clitest.WantCode(t, got, c.code)
			clitest.WantIn(t, "stderr", got.Stderr, c.err)
			if strings.Contains(got.Stderr, clitest.TestToken) {
				t.Errorf("the token is in %q", got.Stderr)
			}
		})
	}
}

func TestShowAndControl(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)

	slow := s.mustRun("run", "slow", "--key", "the/key")
	s.until(slow, "waiting")
	text := s.mustRun("show", "the/key")
	for _, part := range []string{slow + "  slow  waiting", "by cli:", "stumbled", "waits 1h until", "set by the policy", "fixed(1h) attempts=4"} {
		clitest.WantIn(t, "show", text, part)
	}
	var info engine.Info
	if err := json.Unmarshal([]byte(s.mustRun("show", slow[:20], "--json")), &info); err != nil || info.ID != slow || info.Steps[0].Attempts[0].Wait.Delay != time.Hour {
		t.Errorf("show --json: %+v, %v", info, err)
	}
	clitest.WantIn(t, "run again", s.runCommand("run", "slow", "--key", "the/key").Stderr, "belongs to this run")
	differs := s.runCommand("run", "slow", "--key", "the/key", "--input", `{"n":2}`, "--json")
	clitest.WantIn(t, "run again with another input", differs.Out, `"input_differs":true`)
	clitest.WantIn(t, "run again with another input", differs.Stderr, "belongs to run "+slow+", which has another input")
	clitest.WantIn(t, "wake", s.mustRun("wake", slow), slow)
	if state := s.waitForEnd(slow); state != "succeeded" {
		t.Errorf("woken: %s", state)
	}
	clitest.WantIn(t, "show", s.mustRun("show", slow), "ended early by cli:")

	gate := s.mustRun("run", "gate")
	s.until(gate, "running")
	clitest.WantIn(t, "cancel", s.mustRun("cancel", gate), gate+" canceled")
	got := s.runCommand("cancel", gate)
	clitest.WantCode(t, got, CodeOwn)
	clitest.WantIn(t, "stderr", got.Stderr, "was canceled")

	two := s.mustRun("run", "two", "--input", `{"fail":"no"}`)
	s.waitForEnd(two)
	clitest.WantIn(t, "retry", s.mustRun("retry", two), two)
	s.waitForEnd(two)
	again := s.mustRun("retry", "--input", `{}`, two)
	if state := s.waitForEnd(again); state != "succeeded" {
		t.Errorf("replayed: %s", state)
	}
	clitest.WantIn(t, "show", s.mustRun("show", two), "replaced by "+again)
	var rerun control.Started
	if err := json.Unmarshal([]byte(s.mustRun("retry", "--from", "second", again, "--json")), &rerun); err != nil || s.waitForEnd(rerun.ID) != "succeeded" {
		t.Errorf("rerun: %+v, %v", rerun, err)
	}
	for _, part := range []string{"retry of " + again, "origin " + two} {
		clitest.WantIn(t, "show", strings.Join(strings.Fields(s.mustRun("show", rerun.ID)), " "), part)
	}

	for _, c := range []struct {
		name string
		args []string
		code int
		err  string
	}{
		{"show without a run", []string{"show"}, CodeOwn, "no run given"},
		{"a run that does not exist", []string{"show", "nothing"}, CodeUnknown, "no such run: nothing"},
		{"one that is hostile", []string{"show", "x\x1b[2J"}, CodeUnknown, `no such run: x\x1b[2J`},
		{"retry without a run", []string{"retry"}, CodeOwn, "no run given"},
		{"retry of one that does not exist", []string{"retry", "nothing"}, CodeUnknown, "no such run"},
		{"of several, one", []string{"wake", "nothing", again}, CodeFailed, "2 of 2 runs could not be changed"},
		{"retry from nowhere", []string{"retry", "--from", "third", again}, CodeOwn, "known steps: first, second"},
		{"retry of all and one", []string{"retry", "--dead", again}, CodeOwn, "give one of them"},
		{"a filter for one", []string{"retry", "--workflow", "two", again}, CodeOwn, "--workflow needs --dead"},
		{"both ways", []string{"retry", "--from", "x", "--input", "1", again}, CodeOwn, "one of them"},
		{"from for all", []string{"retry", "--dead", "--from", "x"}, CodeOwn, "need exactly one run"},
		{"cancel of nothing", []string{"cancel"}, CodeOwn, "no run given"},
		{"cancel of no workflow", []string{"cancel", "--workflow", "", "--yes"}, CodeOwn, "--workflow: the value is empty"},
		{"cancel of no state", []string{"cancel", "--state", "", "--yes"}, CodeOwn, "--state: the value is empty"},
		{"cancel since nothing", []string{"cancel", "--since", "", "--workflow", "two", "--yes"}, CodeOwn, "--since: the value is empty"},
		{"cancel by blanks", []string{"cancel", "--search", " \t", "--yes"}, CodeOwn, "would select all runs"},
		{"retry of no workflow", []string{"retry", "--dead", "--workflow", "", "--yes"}, CodeOwn, "--workflow: the value is empty"},
		{"retry of no error", []string{"retry", "--dead", "--error-like=", "--yes"}, CodeOwn, "--error-like: the value is empty"},
		{"retry of any number of attempts", []string{"retry", "--dead", "--min-attempts", "0", "--yes"}, CodeOwn, "--min-attempts: the value \"0\" would select all runs"},
		{"a state that does not exist", []string{"runs", "--state", "ded"}, CodeOwn, "--state: "},
		{"a limit that is too large", []string{"runs", "--limit", "1001"}, CodeOwn, "--limit: "},
		{"an order that does not exist", []string{"runs", "--order", "best"}, CodeOwn, "--order: "},
		{"a kind that does not exist", []string{"events", "--kind", "x"}, CodeOwn, "--kind: "},
		{"a backup to nowhere", []string{"backup"}, CodeOwn, "no folder given"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := s.runCommand(c.args...)
			clitest.WantCode(t, got, c.code)
			clitest.WantIn(t, "stderr", got.Stderr, c.err)
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	var ids []string
	for i := range 3 {
		ids = append(ids, s.mustRun("run", "fails", "--input", fmt.Sprintf(`{"fail":"host %d is away"}`, i)))
	}
	other := s.mustRun("run", "fails", "--input", `{"fail":"disk full"}`)
	for _, id := range append(ids, other) {
		s.waitForEnd(id)
	}
	bulk := []string{"retry", "--dead", "--workflow", "fails", "--error-like", "host 9 is away"}

	text := s.mustRun("dead", "--groups")
	clitest.WantIn(t, "groups", text, "RUNS")
	clitest.WantIn(t, "groups", text, "is away")
	clitest.WantIn(t, "groups", s.mustRun("dead", "--groups", "--json"), `"count":3`)
	if n := strings.Count(s.mustRun("dead"), "\n"); n != 4 {
		t.Errorf("dead has %d lines", n)
	}
	if n := strings.Count(s.mustRun("dead", "--error-like", "disk full"), "\n"); n != 1 {
		t.Errorf("dead --error-like has %d lines", n)
	}

	got := s.runCommand(bulk...)
	clitest.WantCode(t, got, CodeOwn)
	clitest.WantIn(t, "stderr", got.Stderr, "this would retry 3 runs: add --yes to confirm")

	cmd, mark := clitest.Command(t, bulk...)
	asked := clitest.StartOnTerminal(t, s.env(cmd), mark)
	asked.Expect("retry 3 runs? [y/N] ")
	asked.Write("n\n")
	asked.WantCode(CodeOwn)
	asked.Expect("nothing was changed")

	cmd, mark = clitest.Command(t, bulk...)
	asked = clitest.StartOnTerminal(t, s.env(cmd), mark)
	asked.Expect("retry 3 runs? [y/N] ")
	asked.Write("y\n")
	asked.WantCode(0)
	asked.Expect("retried 3 of 3 runs")
	for _, id := range ids {
		s.waitForEnd(id)
		if info, err := s.engine.Get(t.Context(), id); err != nil || info.Attempts != 4 {
			t.Errorf("%s: %+v, %v", id, info, err)
		}
	}
	clitest.WantIn(t, "none", s.mustRun("retry", "--dead", "--workflow", "echo", "--yes"), "retried 0 of 0 runs")
	clitest.WantIn(t, "json", s.mustRun(append(bulk, "--yes", "--json")...), `"done":3`)
	for range 2 {
		s.until(s.mustRun("run", "slow"), "waiting")
	}
	clitest.WantIn(t, "cancel", s.mustRun("cancel", "--workflow", "slow", "--yes"), "canceled 2 of 2 runs")
}

func TestListsAndTheRest(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	clitest.WantIn(t, "runs", s.mustRun("runs"), "no runs")
	id := s.mustRun("run", "fails", "--input", `{"fail":"a\u001b[2Jb"}`)
	s.waitForEnd(id)
	text := s.mustRun("runs", "--state", "dead,succeeded", "--workflow", "fails")
	clitest.WantIn(t, "runs", text, id+"  dead   fails     do    2")
	clitest.WantIn(t, "runs", text, `a\x1b[2Jb`)
	var page engine.Page
	if err := json.Unmarshal([]byte(s.mustRun("runs", "--json")), &page); err != nil || len(page.Runs) != 1 || page.Runs[0].ID != id {
		t.Errorf("runs --json: %+v, %v", page, err)
	}
	clitest.WantIn(t, "status", s.mustRun("status"), "tideover v0.0.1; up for")
	clitest.WantIn(t, "status", s.mustRun("status", "--json"), `"version":"v0.0.1"`)
	clitest.WantIn(t, "workflows", s.mustRun("workflows"), "second  after first")
	clitest.WantIn(t, "workflows", s.mustRun("workflows", "--json"), `"name":"two"`)
	clitest.WantIn(t, "schedules", s.mustRun("schedules"), "no schedules")
	if err := s.engine.SetSchedules(t.Context(), []engine.Schedule{{Name: "nightly", Workflow: "echo", Cron: "0 3 * * *"}}); err != nil {
		t.Fatal(err)
	}
	clitest.WantIn(t, "schedules", s.mustRun("schedules"), "nightly  echo      0 3 * * *")
	clitest.WantIn(t, "schedules", s.mustRun("schedules", "--json"), `"cron":"0 3 * * *"`)

	text = s.mustRun("events")
	clitest.WantIn(t, "events", text, id[:shortID]+" fails: Run started by cli:")
	clitest.WantIn(t, "events", text, `fails: Retry after error: a\x1b[2Jb`)
	if text := s.mustRun("events", "--run", id, "--kind", "gave-up", "--json"); strings.Count(text, `"kind":"gave-up"`) != 2 || strings.Contains(text, "run-started") {
		t.Errorf("events --kind gave-up --json: %s", text)
	}

	dir := filepath.Join(t.TempDir(), "copy")
	clitest.WantIn(t, "backup", s.mustRun("backup", dir), "copied to "+dir)
	if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
		t.Errorf("backup: %v, %v", files, err)
	}
}

func TestWatching(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	p, output := s.background("runs", "--watch")
	id := s.mustRun("run", "gate")
	testwait.Until(t, "a line", func() bool { return strings.Contains(output(), id+" gate running") })
	close(s.gate)
	testwait.Until(t, "another line", func() bool { return strings.Contains(output(), id+" gate succeeded") })
	p.Signal(syscall.SIGTERM)
	if got := p.End(); got.Code != 128+int(syscall.SIGTERM) {
		t.Errorf("code %d, stderr %q", got.Code, got.Stderr)
	}
	cmd, mark := clitest.Command(t, "runs", "--watch")
	on := clitest.StartOnTerminal(t, s.env(cmd), mark)
	on.Expect(id[:shortID])
	on.Expect("\x1b[2F") // moves up over the two lines of the list, to redraw them
	on.Write("\x03")
	on.WantCode(130)
}

func TestWhoeverWaitsMayBeInterrupted(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	for _, flag := range []string{"--wait", "--follow"} {
		p, _ := s.background("run", "gate", flag, "--key", flag)
		testwait.Until(t, "the run", func() bool { ids, _ := s.engine.Find(t.Context(), flag, 2); return len(ids) == 1 })
		ids, _ := s.engine.Find(t.Context(), flag, 2)
		p.Signal(syscall.SIGINT)
		got := p.End()
		clitest.WantCode(t, got, 130)
		// The interrupt may come before the id is known.
		if got.Stderr != "" {
			clitest.WantIn(t, "stderr", got.Stderr, "run "+ids[0]+" continues")
		}
		if info, err := s.engine.Get(t.Context(), ids[0]); err != nil || info.Finished() {
			t.Errorf("%s: %+v, %v", flag, info, err)
		}
	}
	p, _ := s.background("run", "gate", "--wait", "--key", "k")
	testwait.Until(t, "the run", func() bool { ids, _ := s.engine.Find(t.Context(), "k", 2); return len(ids) == 1 })
	s.mustRun("cancel", "k")
	clitest.WantCode(t, p.End(), codeCanceled)
}

func TestEventsAreFollowedThroughARestart(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	p, output := s.background("events", "--follow", "--json", "--after", "0")
	first := s.mustRun("run", "echo")
	testwait.Until(t, "events", func() bool { return strings.Contains(output(), first) })
	waiting, result := s.background("run", "gate", "--wait", "--key", "g")
	testwait.Until(t, "the run", func() bool { ids, _ := s.engine.Find(t.Context(), "g", 2); return len(ids) == 1 })
	s.close()
	s.listen()
	second := s.mustRun("run", "echo")
	testwait.Until(t, "events of the new server", func() bool { return strings.Contains(output(), second) })
	close(s.gate)
	got := waiting.End()
	if clitest.WantCode(t, got, 0); result() != "\"through\"\n" {
		t.Errorf("result %q, stderr %q", result(), got.Stderr)
	}
	p.Signal(syscall.SIGTERM)
	p.End()
	for line := range strings.Lines(output()) {
		var e control.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Message == "" {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	dead := s.mustRun("run", "fails", "--input", `{"fail":"x"}`)
	s.waitForEnd(dead)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", ""}, "stumble\n"},
		{[]string{"show", dead[:5]}, dead + "\tfails, dead\n"},
		{[]string{"retry", ""}, dead + "\t"},
		{[]string{"runs", "--state", "d"}, "dead\n"},
		{[]string{"runs", "--state", "dead,s"}, "dead,succeeded\n"},
		{[]string{"runs", "--workflow", ""}, "echo\n"},
		{[]string{"events", "--kind", ""}, "gave-up\n"},
	} {
		// Completion offers nothing if the server is slow, as on a busy machine: try again.
		testwait.Until(t, fmt.Sprintf("%q completes to %q", c.args, c.want), func() bool {
			return strings.Contains(s.mustRun(append([]string{"__complete"}, c.args...)...)+"\n", c.want)
		})
	}
	if text := s.mustRun("__complete", "cancel", ""); strings.Contains(text, dead) {
		t.Errorf("cancel offers a dead run: %s", text)
	}
	cmd, _ := clitest.Command(t, "__complete", "show", "")
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME=/nowhere", "TIDEOVER_SERVER=")
	if got := clitest.Finish(t, cmd); got.Code != 0 || got.Out != ":4\n" || strings.Contains(got.Stderr, "nowhere") {
		t.Errorf("without a server: %+v", got)
	}
	// A server that accepts connections and never answers must not block completion.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd, _ = clitest.Command(t, "__complete", "--", "show", "--server", "http://"+l.Addr().String(), "")
	clitest.WantCode(t, clitest.Finish(t, cmd), 0)
}

func TestHelpOfTheVerbs(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"run", "runs", "show", "retry", "cancel", "wake", "signal", "callback", "approve", "reject", "answer", "dead", "events", "workflows", "schedules", "status", "backup"} {
		text := clitest.Run(t, verb, "--help")
		clitest.WantCode(t, text, 0)
		for _, part := range []string{"Exit codes:", "Examples:", "--json", "--server", "help servers", "  125  "} {
			clitest.WantIn(t, verb+" --help", text.Out, part)
		}
		if verb == "backup" && strings.Contains(text.Out, "the run is dead") {
			t.Errorf("the help of backup speaks of runs: %s", text.Out)
		}
	}
}
