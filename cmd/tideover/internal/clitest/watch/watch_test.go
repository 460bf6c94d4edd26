//go:build unix

package watch_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// fakeAssistant is a script that records its arguments. Its n-th call runs the script in the file
// n.
const fakeAssistant = `cd "$(dirname "$0")"; echo "$(date +%s.%N) $*" >> calls; n=$(wc -l < calls); test -f $n || exit 0; . ./$n`

// watchEnv is a fake assistant and the state of its watch.
type watchEnv struct {
	t   *testing.T
	dir string
}

func newWatchEnv(t *testing.T, answers ...string) *watchEnv {
	t.Helper()
	w := &watchEnv{t, clitest.ShortDir(t)}
	w.write("assistant", "#!/bin/sh\n"+fakeAssistant+"\n")
	for i, a := range answers {
		w.write(fmt.Sprint(i+1), a+"\n")
	}
	return w
}

func (w *watchEnv) write(name, text string) {
	w.t.Helper()
	testfile.WriteScript(w.t, filepath.Join(w.dir, name), text)
}

// quickly is a policy with short delays, and without the long server-slack of the default.
const quickly = "fixed(10ms) attempts=3 server-slack=1ms"

// command returns a watch of the fake assistant, with these flags.
func (w *watchEnv) command(flags ...string) *exec.Cmd {
	w.t.Helper()
	path := filepath.Join(w.dir, "assistant")
	args := append([]string{"watch", "--data", filepath.Join(w.dir, "state"), "--policy", quickly, "--resume", path + " resume {{.Session}}"}, flags...)
	cmd, _ := clitest.Command(w.t, append(args, "--", path, "start", "{{.Session}}")...)
	cmd.Dir = w.dir
	return cmd
}

// until starts a watch, and waits until the watch or the assistant has printed the text.
func (w *watchEnv) until(said string, flags ...string) (*exec.Cmd, *clitest.SyncBuffer) {
	w.t.Helper()
	cmd, out := w.command(flags...), new(clitest.SyncBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	testwait.Until(w.t, said, func() bool { return strings.Contains(out.String(), said) })
	return cmd, out
}

// calls returns the arguments of the assistant's calls, without the times.
func (w *watchEnv) calls() (list []string) {
	text, _ := os.ReadFile(filepath.Join(w.dir, "calls"))
	for line := range strings.Lines(string(text)) {
		_, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		list = append(list, args)
	}
	return list
}

func TestWatchResumesTheSameSession(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `echo "working"; echo "retry after 1s" >&2; exit 1`, `echo "crashed"; exit 3`, `echo done`)
	got := clitest.Finish(t, w.command("--name", "night"))
	clitest.WantCode(t, got, 0)
	calls := w.calls()
	if len(calls) != 3 {
		t.Fatalf("the assistant was called with %q", calls)
	}
	_, id, _ := strings.Cut(calls[0], "start ")
	if len(id) != 36 || calls[1] != "resume "+id || calls[2] != calls[1] {
		t.Errorf("the assistant was called with %q", calls)
	}
	if got.Out != "working\ncrashed\ndone\n" {
		t.Errorf("stdout = %q", got.Out)
	}
	for _, part := range []string{"retry after 1s\n", "rate-limit, exit code 1: retry after 1s; next at ", "exit code 3: crashed; next at ", "tideover: continuing after a wait of ", "session night was completed after 3 commands"} {
		clitest.WantIn(t, "stderr", got.Stderr, part)
	}
	if info, err := os.Stat(filepath.Join(w.dir, "state/watch/night/audit.jsonl")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the audit log: %v, %v", info, err)
	}
}

func TestWatchIsKilledInAWait(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `echo "crashed"; exit 3`, `echo "retry after 20s"; exit 1`, `echo done`)
	cmd, _ := w.until("retry after 20s; next at", "--name", "night")
	before := w.session()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	cmd, again := w.until("continuing session night: waiting until", "--name", "night")
	after := w.session()
	if after.Next != before.Next || after.Windows != 1 || after.Commands != 2 || after.Session != before.Session || before.Next == "" {
		t.Errorf("before %+v\n after %+v", before, after)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, again.String())
	}
	if calls := w.calls(); len(calls) != 3 {
		t.Errorf("the assistant was called with %q", calls)
	}
	text, _ := os.ReadFile(filepath.Join(w.dir, "calls"))
	var at float64
	_, _ = fmt.Sscan(strings.Split(string(text), "\n")[2], &at)
	due, err := time.Parse(time.RFC3339Nano, before.Next)
	if err != nil || at < float64(due.UnixNano())/1e9-0.001 {
		t.Errorf("resumed at %f, before %v, %v", at, due, err)
	}
}

// watchedSession has the fields of a session that the tests read.
type watchedSession struct {
	State, Session, Next, Reason string
	Windows, Commands            int
}

// session asks the watch for the session "night".
func (w *watchEnv) session() (s watchedSession) {
	w.t.Helper()
	cmd, _ := clitest.Command(w.t, "sessions", "show", "night", "--json")
	cmd.Env = append(cmd.Env, "TIDEOVER_SERVER=unix:"+filepath.Join(w.dir, "state/watch/night/control.sock"))
	o := clitest.Finish(w.t, cmd)
	if err := json.Unmarshal([]byte(o.Out), &s); err != nil {
		w.t.Fatalf("sessions show: %v in %q; %q", err, o.Out, o.Stderr)
	}
	return s
}

// webhook is a server that records messages. It answers with the given statuses, then with 200.
type webhook struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	status []int
}

func newWebhook(t *testing.T, status ...int) *webhook {
	t.Helper()
	r := &webhook{status: status}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bodies = append(r.bodies, string(body))
		if n := len(r.bodies); n <= len(r.status) {
			w.WriteHeader(r.status[n-1])
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *webhook) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.bodies...)
}

func (w *watchEnv) configure(url string) []string {
	w.t.Helper()
	w.write("tideover.yaml", "version: 1\nnotify:\n  hook: {webhook: \""+url+"\", policy: fixed(50ms) attempts=unlimited, on: [gave-up, waiting>1s, resumed]}\n")
	return []string{"--config", filepath.Join(w.dir, "tideover.yaml"), "--notify", "hook"}
}

func TestWatchGivesUpAndSomebodyIsTold(t *testing.T) {
	t.Parallel()
	server := newWebhook(t, 503, 503)
	w := newWatchEnv(t, "echo oops; exit 7", "echo oops; exit 7", "echo oops; exit 9", "exit 0")
	got := clitest.Finish(t, w.command(w.configure(server.URL)...))
	clitest.WantCode(t, got, 9)
	clitest.WantIn(t, "stderr", got.Stderr, "gave up (attempts) after 3 commands: exit code 9: oops")
	bodies := server.all()
	if len(bodies) != 3 || bodies[0] != bodies[2] {
		t.Fatalf("the server got %q", bodies)
	}
	for _, part := range []string{`"event":"gave-up"`, `exit code 9: oops`, `"attempt":3`} {
		clitest.WantIn(t, "message", bodies[2], part)
	}
}

func TestWatchIsKilledBetweenGivingUpAndSending(t *testing.T) {
	t.Parallel()
	server := newWebhook(t)
	addr := server.Listener.Addr().String()
	server.Close() // messages fail for now
	w := newWatchEnv(t, "exit 7", "exit 7", "exit 7", "exit 0")
	cmd, _ := w.until("gave up", append(w.configure("http://"+addr), "--name", "night")...)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	var mu sync.Mutex
	var bodies []string
	l := listenAgain(t, addr)
	late := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(body))
	})}
	go func() { _ = late.Serve(l) }()
	defer late.Close()
	cmd = w.command(append(w.configure("http://"+addr), "--name", "night")...)
	clitest.WantCode(t, clitest.Finish(t, cmd), 0)
	mu.Lock()
	defer mu.Unlock()
	told := 0
	for _, b := range bodies {
		if strings.Contains(b, `"event":"gave-up"`) {
			told++
		}
	}
	if told != 1 {
		t.Errorf("the server got %q", bodies)
	}
}

func TestWatchRefusesBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	readOnly := filepath.Join(dir, "file")
	if err := os.WriteFile(readOnly, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no command given", nil, "no command given"},
		{"unknown pack", []string{"--detect", "claude", "--", "touch", dir + "/ran"}, `--detect: pack "claude" is unknown (did you mean "claude-code"?)`},
		{"unknown policy", []string{"--policy", "daemn", "--", "touch", dir + "/ran"}, `--policy: `},
		{"policy that hedges", []string{"--policy", "daemon hedge=1s", "--", "touch", dir + "/ran"}, "hedge: session can't honour"},
		{"unknown notifier", []string{"--notify", "phone", "--", "touch", dir + "/ran"}, `--notify: unknown notifier "phone"`},
		{"unknown field", []string{"--", "touch", "{{.Sesion}}"}, "the fields are .Session, .Name and .Attempt"},
		{"resume without an id", []string{"--resume", "job --resume", "--", "touch", dir + "/ran"}, "--resume: does not contain {{.Session}}"},
		{"start without an id", []string{"--resume", "job {{.Session}}", "--", "touch", dir + "/ran"}, "the command: does not contain {{.Session}}"},
		{"open quote", []string{"--resume", "job 'x", "--", "touch", dir + "/ran"}, "--resume: a quote is not closed"},
		{"quiet hours", []string{"--quiet-hours", "late", "--", "touch", dir + "/ran"}, "--quiet-hours: "},
		{"reason", []string{"--on", "terminal=wait", "--", "touch", dir + "/ran"}, `"terminal" is not a reason`},
		{"action", []string{"--on", "crashed=sleep", "--", "touch", dir + "/ran"}, `--on: "sleep" is not an action`},
		{"folder that is not there", []string{"--dir", dir + "/none", "--", "touch", dir + "/ran"}, "--dir: "},
		{"state that can't be written", []string{"--data", readOnly, "--", "touch", dir + "/ran"}, "not a directory"},
		{"name", []string{"--name", "a/b", "--", "touch", dir + "/ran"}, "--name: "},
		{"name of a folder", []string{"--name", "..", "--", "touch", dir + "/ran"}, "--name: "},
		{"windows", []string{"--windows", "0", "--", "touch", dir + "/ran"}, "--windows: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"watch"}, tt.args...)
			if !strings.Contains(strings.Join(tt.args, " "), "--data") {
				args = append([]string{"watch", "--data", filepath.Join(dir, "state")}, tt.args...)
			}
			cmd, _ := clitest.Command(t, args...)
			cmd.Dir = dir
			got := clitest.Finish(t, cmd)
			clitest.WantCode(t, got, 125)
			clitest.WantIn(t, "stderr", got.Stderr, tt.want)
			if _, err := os.Stat(dir + "/ran"); err == nil {
				t.Error("the command was run")
			}
		})
	}
}

func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `test -t 0 && test -t 1 && test -t 2 && echo "all on a terminal of $(stty size)"; read x; echo "read <$x>"; echo "retry after 1s"; exit 1`, `echo "goes on"`)
	path := filepath.Join(w.dir, "assistant")
	s := clitest.OnTerminal(t, "watch", "--data", filepath.Join(w.dir, "state"), "--policy", quickly, "--", path)
	s.Expect("all on a terminal of 24 80")
	s.Write("hello\r")
	s.Expect("read <hello>")
	s.Expect("next at")
	s.Expect("goes on")
	s.WantCode(0)
}

func TestWatchEndedByItsUser(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, "exit 130", "echo again")
	clitest.WantCode(t, clitest.Finish(t, w.command()), 130)
	if calls := w.calls(); len(calls) != 1 {
		t.Errorf("the assistant was called with %q", calls)
	}
}

func TestWatchToldToEndGoesOnLater(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `echo begun; sleep 60`, `echo done`)
	cmd, out := w.until("begun", "--name", "night")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := clitest.ExitCode(cmd); code != 130 {
		t.Errorf("exit code %d, want 130: %s", code, out.String())
	}
	clitest.WantCode(t, clitest.Finish(t, w.command("--name", "night")), 0)
	calls := w.calls()
	if len(calls) != 2 || !strings.HasPrefix(calls[1], "resume ") {
		t.Errorf("the assistant was called with %q", calls)
	}
}

func TestTwoWatchesOfOneSession(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `echo begun; sleep 60`)
	cmd, _ := w.until("begun", "--name", "night")
	got := clitest.Finish(t, w.command("--name", "night"))
	clitest.WantCode(t, got, 125)
	clitest.WantIn(t, "stderr", got.Stderr, "session night is being watched already")
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
}

// listenAgain listens on an address that was in use. It waits until the address is free.
func listenAgain(t *testing.T, addr string) (l net.Listener) {
	t.Helper()
	testwait.Until(t, addr+" is free", func() bool {
		var err error
		l, err = net.Listen("tcp", addr)
		return err == nil
	})
	return l
}

// Control keys go to the command, not to tideover.
func TestKeysReachTheWatchedCommand(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `trap 'echo interrupted' INT; echo ready; while true; do read x || continue; echo "read <$x>"; test "$x" = end && exit 130; done`)
	s := clitest.OnTerminal(t, "watch", "--data", filepath.Join(w.dir, "state"), "--", filepath.Join(w.dir, "assistant"))
	s.Expect("ready")
	s.Write("\x03")
	s.Expect("interrupted")
	s.Write("\x1a") // Ctrl-Z has no effect: no shell could continue the command
	testwait.Until(t, "the command goes on", func() bool {
		s.Write("one\r")
		time.Sleep(50 * time.Millisecond) // real clock: the pace of the input
		return strings.Contains(s.Screen(), "read <one>")
	})
	s.Write("end\r")
	s.WantCode(130)
}

func TestWatchOfAnotherCommandUnderTheSameName(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `echo "retry after 3600s"; exit 1`)
	cmd, _ := w.until("next at", "--name", "night")
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	args := []string{"watch", "--data", filepath.Join(w.dir, "state"), "--name", "night"}
	other, _ := clitest.Command(t, append(args, "--", "true")...)
	got := clitest.Finish(t, other)
	clitest.WantCode(t, got, 125)
	clitest.WantIn(t, "stderr", got.Stderr, "session night belongs to another command")
	other, _ = clitest.Command(t, append(args, "--new", "--", "true")...)
	clitest.WantCode(t, clitest.Finish(t, other), 0)
}

// A command that exits with 0 after TERM has not completed its session: the next watch resumes it.
func TestWatchedCommandEndsWellWhenTold(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `trap 'exit 0' TERM; echo begun; sleep 60 & wait`, `echo done`)
	cmd, _ := w.until("begun", "--name", "night")
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	clitest.WantCode(t, clitest.Finish(t, w.command("--name", "night")), 0)
	if calls := w.calls(); len(calls) != 2 || !strings.HasPrefix(calls[1], "resume ") {
		t.Errorf("the assistant was called with %q", calls)
	}
}

// A watch is killed. The next watch, with --new, starts a new session and does not resume the old
// one.
func TestWatchAnewAfterAKill(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `echo begun; sleep 60`, `read x; echo "read <$x>"`)
	cmd, _ := w.until("begun", "--name", "night")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	cmd = w.command("--name", "night", "--new")
	cmd.Stdin = strings.NewReader("hello\n")
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "stdout", got.Out, "read <hello>")
	calls := w.calls()
	if len(calls) != 2 || !strings.HasPrefix(calls[1], "start ") || calls[0] == calls[1] {
		t.Errorf("the assistant was called with %q", calls)
	}
}

// The command leaves a process behind that keeps its terminal open. The watch still ends.
func TestWatchOnATerminalThatSomebodyHolds(t *testing.T) {
	t.Parallel()
	w := newWatchEnv(t, `setsid sleep 60 & sleep 0.3; echo bye; exit 0`)
	s := clitest.OnTerminal(t, "watch", "--data", filepath.Join(w.dir, "state"), "--", filepath.Join(w.dir, "assistant"))
	s.Expect("bye")
	if got := s.Wait(); got != 0 {
		t.Errorf("exit code %d; the terminal shows %q", got, s.Screen())
	}
	for _, pid := range clitest.Survivors(t, s.Mark) {
		if n, err := strconv.Atoi(strings.Fields(pid)[0]); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
}
