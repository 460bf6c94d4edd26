//go:build unix

package exec_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// outputWays are the ways in which exec handles the output of a command, with the flags that select
// them.
var outputWays = []struct {
	name  string
	flags []string
}{
	{"direct", nil},
	{"buffered", []string{"--buffer"}},
	{"looked at", []string{"--until-output", "."}},
	{"buffered and looked at", []string{"--buffer", "--until-output", "."}},
	{"stderr looked at", []string{"--retry-stderr", "never there"}},
}

func TestOutputIsNotTouched(t *testing.T) {
	t.Parallel()
	input := data(3 << 20)
	for i := range input {
		input[i] += byte(i * 7) // every byte value, long lines
	}
	for _, way := range outputWays {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"exec", "--policy", clitest.Quick}, way.flags...)
			cmd, _ := clitest.Command(t, append(args, "--", "sh", "-c", "tee /dev/stderr")...)
			cmd.Stdin = bytes.NewReader(input)
			got := clitest.Finish(t, cmd)
			clitest.WantCode(t, got, 0)
			if got.Out != string(input) || got.Stderr != string(input) {
				t.Errorf("%d bytes on stdout and %d on stderr are not the %d written", len(got.Out), len(got.Stderr), len(input))
			}
		})
	}
}

func TestOutputOfEveryAttemptComesInOrder(t *testing.T) {
	t.Parallel()
	const script = `for i in 1 2 3 4 5 6 7 8 9; do echo $TIDEOVER_ATTEMPT.$i; done; printf end; test $TIDEOVER_ATTEMPT = 3`
	want := ""
	for attempt := 1; attempt <= 3; attempt++ {
		for i := 1; i <= 9; i++ {
			want += fmt.Sprintf("%d.%d\n", attempt, i)
		}
		want += "end"
	}
	for _, flags := range [][]string{nil, {"--until-output", "end"}} {
		got := clitest.Run(t, append(append([]string{"exec", "--policy", clitest.Quick}, flags...), "--", "sh", "-c", script)...)
		if clitest.WantCode(t, got, 0); got.Out != want {
			t.Errorf("exec %q: stdout = %q, want %q", flags, got.Out, want)
		}
	}
}

func TestCommandHasOurDescriptors(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	name := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd, _ := clitest.Command(t, "exec", "--", "readlink", "/proc/self/fd/1")
	cmd.Stdout = f
	clitest.WantCode(t, clitest.Finish(t, cmd), 0)
	if got, _ := os.ReadFile(name); string(got) != name+"\n" {
		t.Errorf("standard output of the command = %q, want %q", got, name)
	}
}

func TestOurLinesHaveAPrefixAndGoToStderr(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "exec", "--policy", "fixed(10ms) attempts=3", "--", "sh", "-c", `echo secret-free; test $TIDEOVER_ATTEMPT = 3 || exit 75`, "argument-with-token")
	clitest.WantCode(t, got, 0)
	if got.Out != "secret-free\nsecret-free\nsecret-free\n" {
		t.Errorf("stdout = %q", got.Out)
	}
	ours := strings.Split(strings.TrimSpace(got.Stderr), "\n")
	want := []string{
		"tideover: attempt 1/3 exited with 75; next in 10ms",
		"tideover: attempt 2/3 exited with 75; next in 10ms",
		"tideover: attempt 3/3 succeeded after ",
	}
	for i, w := range want {
		if len(ours) != len(want) || !strings.HasPrefix(ours[i], w) {
			t.Fatalf("stderr = %q, want lines %q", ours, want)
		}
	}
	if strings.Contains(got.Stderr, "token") {
		t.Errorf("stderr has the command's arguments: %q", got.Stderr)
	}
	if got := clitest.Run(t, "exec", "--", "true"); got.Stderr != "" {
		t.Errorf("a single attempt that succeeds says %q", got.Stderr)
	}
	if got := clitest.Run(t, "exec", "--quiet", "--policy", clitest.Quick, "--", "false"); !strings.HasPrefix(got.Stderr, "tideover: gave up after 3 attempts in ") || strings.Count(got.Stderr, "\n") != 1 || got.Code != 1 {
		t.Errorf("quiet: %+v, want one line", got)
	}
	if got := clitest.Run(t, "exec", "--quiet", "--policy", clitest.Quick, "--", "sh", "-c", "test $TIDEOVER_ATTEMPT = 2"); got.Stderr != "" || got.Code != 0 {
		t.Errorf("quiet, and the second attempt succeeds: %+v", got)
	}
}

func TestBufferPassesOnTheWinningAttempt(t *testing.T) {
	t.Parallel()
	const script = `echo attempt $TIDEOVER_ATTEMPT; echo again > /dev/stdout; echo said $TIDEOVER_ATTEMPT >&2; test $TIDEOVER_ATTEMPT = `
	got := clitest.Run(t, "exec", "--buffer", "--quiet", "--policy", clitest.Quick, "--", "sh", "-c", script+"2")
	if got != (clitest.Outcome{Code: 0, Out: "attempt 2\nagain\n", Stderr: "said 1\nsaid 2\n"}) {
		t.Errorf("winning: %+v", got)
	}
	got = clitest.Run(t, "exec", "--buffer", "--quiet", "--policy", clitest.Quick, "--", "sh", "-c", script+"9")
	if said, line, _ := strings.Cut(got.Stderr, "tideover: gave up"); got.Code != 1 || got.Out != "" || said != "said 1\nsaid 2\nsaid 3\n" || strings.Count(line, "\n") != 1 {
		t.Errorf("giving up: %+v", got)
	}
}

func TestHeldOutputIsPrintedOnlyAtGivingUp(t *testing.T) {
	t.Parallel()
	const script = `echo attempt $TIDEOVER_ATTEMPT; echo said $TIDEOVER_ATTEMPT >&2; test $TIDEOVER_ATTEMPT = `
	exec := func(tmp, script string) clitest.Outcome {
		cmd, _ := clitest.Command(t, "exec", "--hold-output", "--policy", clitest.Quick, "--", "sh", "-c", script)
		cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
		return clitest.Finish(t, cmd)
	}
	if got := exec(t.TempDir(), script+"2"); got != (clitest.Outcome{}) {
		t.Errorf("the second attempt succeeds: %+v, want no output", got)
	}
	const out, said = "attempt 1\nattempt 2\nattempt 3\n", "said 1\nsaid 2\nsaid 3\n"
	got := exec(t.TempDir(), script+"9")
	if all, line, _ := strings.Cut(got.Stderr, "tideover: gave up after 3 attempts"); got.Code != 1 || got.Out != out || all != said || strings.Count(line, "\n") != 1 {
		t.Errorf("giving up: %+v", got)
	}
	if got := exec(filepath.Join(t.TempDir(), "none"), script+"3"); got != (clitest.Outcome{Out: out, Stderr: said}) {
		t.Errorf("without a place for a temporary file: %+v, want the output at once", got)
	}
	const size = 1 << 20 // more than one record
	if got := exec(t.TempDir(), fmt.Sprintf("head -c %d /dev/zero; exit 4", size)); got.Code != 4 || len(got.Out) != 3*size {
		t.Errorf("much output: exit code %d, %d bytes, want 4, %d", got.Code, len(got.Out), 3*size)
	}
	if got := clitest.Run(t, "exec", "--hold-output", "--buffer", "--", "true"); got.Code != 125 {
		t.Errorf("with --buffer: %+v", got)
	}
}

func TestDaemonThatKeepsTheOutputOpenDoesNotHang(t *testing.T) {
	t.Parallel()
	for _, way := range outputWays[1:4] {
		s := start(t, append(append([]string{"exec"}, way.flags...), "--", "sh", "-c", `sleep 600 2>/dev/null & echo $! > $DIR/daemon; echo up`)...)
		clitest.WantCode(t, s.End(), 0)
		if p, err := os.FindProcess(clitest.Atoi(s.AwaitSign("daemon"))); err == nil {
			_ = p.Kill()
		}
	}
}

func TestReaderThatIsGoneIsNotWorthARetry(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--until-output", "^never$"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		cmd, _ := clitest.Command(t, append(append([]string{"exec", "--policy", "fixed(1h) attempts=3"}, flags...), "--", "yes")...)
		cmd.Stdout = w
		got := clitest.Finish(t, cmd)
		w.Close()
		clitest.WantCode(t, got, 141)
		clitest.WantIn(t, "stderr", got.Stderr, "the reader of its output is gone")
	}
}

func TestStuckReaderDoesNotKeepUsFromEnding(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--until-output", "^never$"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		s := &clitest.Background{T: t, Folder: t.TempDir()}
		s.Cmd, s.Mark = clitest.Command(t, append(append([]string{"exec", "--grace", "100ms"}, flags...), "--", "sh", "-c", "echo > $DIR/ready; exec yes")...)
		s.Env = append(s.Env, "DIR="+s.Folder)
		s.Stdout = w
		s.Begin()
		w.Close()
		s.AwaitSign("ready")
		_ = s.Process.Signal(os.Interrupt)
		clitest.WantCode(t, s.End(), 130)
		clitest.WantNoProcess(t, s.Mark)
	}
}

func TestOutputThatCannotBeWrittenIsOurOwnError(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t) // for its full device
	for _, tt := range []struct {
		name   string
		flags  []string
		stderr bool // standard error is the full device, instead of standard output
	}{
		{"looked at", []string{"--until-output", "x"}, false},
		{"held back", []string{"--buffer"}, false},
		{"stderr", []string{"--retry-stderr", "x"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer full.Close()
			events := filepath.Join(t.TempDir(), "events")
			cmd, _ := clitest.Command(t, append(append([]string{"exec", "-q", "-p", clitest.Quick, "--events", events}, tt.flags...), "--", "sh", "-c", "echo x; echo x >&2")...)
			cmd.Stdout = full
			if tt.stderr {
				cmd.Stdout, cmd.Stderr = nil, full
				_ = cmd.Run()
				clitest.WantCode(t, clitest.Outcome{Code: clitest.ExitCode(cmd)}, 125)
			} else {
				got := clitest.Finish(t, cmd)
				clitest.WantCode(t, got, 125)
				clitest.WantIn(t, "stderr", got.Stderr, "output: ")
				clitest.WantIn(t, "stderr", got.Stderr, "no space left on device")
			}
			data, _ := os.ReadFile(events)
			if tt.name != "held back" && kinds(t, data) != "attempt-started attempt-failed gave-up" {
				t.Errorf("events = %q", kinds(t, data))
			}
		})
	}
}

func TestReaderGoneBeforeTheEndOfASuccessIs141(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	for _, flags := range []string{"--until-output=x", "--buffer"} {
		cmd, _ := clitest.Command(t, "exec", "-p", "fixed(1h) attempts=3", flags, "--", "echo", "x")
		cmd.Stdout = w
		clitest.WantCode(t, clitest.Finish(t, cmd), 141)
	}
	cmd, _ := clitest.Command(t, "exec", "-p", "fixed(1h) attempts=3", "--retry-stderr", "x", "--", "sh", "-c", "echo x >&2")
	cmd.Stderr = w
	_ = cmd.Run()
	clitest.WantCode(t, clitest.Outcome{Code: clitest.ExitCode(cmd)}, 141)
	cmd, _ = clitest.Command(t, "exec", "-p", "fixed(1h) attempts=3", "--", "sh", "-c", "trap '' PIPE; echo x || exit 3")
	cmd.Stdout = w
	clitest.WantCode(t, clitest.Finish(t, cmd), 3) // a command that ignores SIGPIPE and exits with its own code is not retried either
}

func TestDaemonThatKeepsWritingDoesNotKeepUs(t *testing.T) {
	t.Parallel()
	for _, way := range outputWays[1:4] {
		s := &clitest.Background{T: t, Folder: t.TempDir()}
		s.Cmd, s.Mark = clitest.Command(t, append(append([]string{"exec"}, way.flags...), "--", "sh", "-c", `yes 2>/dev/null & echo $! > $DIR/daemon; echo up`)...)
		s.Env = append(s.Env, "DIR="+s.Folder)
		s.Stdout = slowReader{}
		s.Begin()
		clitest.WantCode(t, s.End(), 0)
		if p, err := os.FindProcess(clitest.Atoi(s.AwaitSign("daemon"))); err == nil {
			_ = p.Kill()
		}
	}
}

// slowReader is a writer that is slower than the daemon in the test, so that there is always unread
// output.
type slowReader struct{}

func (slowReader) Write(p []byte) (int, error) {
	time.Sleep(time.Millisecond) // real clock: any reader that is slower than the daemon will do
	return len(p), nil
}

func TestTimeoutsHoldAlthoughOurReaderIsStuck(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"each attempt's": {"--attempt-timeout", "100ms", "-p", "fixed(0s) attempts=2"},
		"the total":      {"--total-timeout", "100ms", "-p", "fixed(0s) attempts=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			s := &clitest.Background{T: t, Folder: t.TempDir()}
			s.Cmd, s.Mark = clitest.Command(t, append(append([]string{"exec", "--grace", "50ms", "--until-output", "^never$"}, flags...), "--", "yes")...)
			s.Stdout = w
			s.Begin()
			w.Close()
			clitest.WantCode(t, s.End(), 124)
			clitest.WantNoProcess(t, s.Mark)
		})
	}
}

// fillPipe writes to the pipe until it is full.
func fillPipe(t *testing.T, w *os.File) {
	t.Helper()
	raw, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var full error
	err = raw.Write(func(fd uintptr) bool {
		for full == nil {
			_, full = unix.Write(int(fd), make([]byte, 4096))
		}
		return true
	})
	if err != nil || !errors.Is(full, unix.EAGAIN) {
		t.Fatalf("the pipe is not full: %v, %v", err, full)
	}
}

func TestStuckReaderOfOurLinesDoesNotKeepUsFromEnding(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	for name, flags := range map[string][]string{"stderr": nil, "events": {"--events", "3"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			fillPipe(t, w)
			s := &clitest.Background{T: t, Folder: t.TempDir()}
			s.Cmd, s.Mark = clitest.Command(t, append(append([]string{"exec", "--grace", "50ms", "-p", "fixed(0s) attempts=3"}, flags...), "--", "false")...)
			s.Stderr, s.ExtraFiles = w, []*os.File{w}
			s.Begin()
			testwait.Until(t, "it has its signals", func() bool { return catches(t, s.Process.Pid, syscall.SIGTSTP) })
			s.Signal(syscall.SIGTERM)
			if code := s.End().Code; code != 143 && code != 1 { // 1 if the command was quicker than the signal
				t.Errorf("exit code = %d, want 143", code)
			}
		})
	}
}

// catches reports whether the process has a handler for the signal.
func catches(t *testing.T, pid int, sig syscall.Signal) bool {
	t.Helper()
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "SigCgt:")
	set, _ := strconv.ParseUint(strings.Fields(rest + " 0")[0], 16, 64)
	return set>>(sig-1)&1 != 0
}

func TestTermWhilePassingOnWhatWasHeldBackIs143(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := &clitest.Background{T: t, Folder: t.TempDir()}
	s.Cmd, s.Mark = clitest.Command(t, "exec", "--buffer", "--", "head", "-c", "1000000", "/dev/zero")
	s.Stdout = w
	s.Begin()
	w.Close()
	testwait.Until(t, "the output comes", func() bool {
		n, _ := unix.IoctlGetInt(int(r.Fd()), fionread)
		return n > 0
	})
	s.Signal(syscall.SIGTERM)
	got := s.End()
	clitest.WantCode(t, got, 143)
}

// fionread is the ioctl that returns how many bytes a pipe holds.
var fionread = map[bool]uint{true: 0x541b, false: 0x4004667f}[runtime.GOOS == "linux"]
