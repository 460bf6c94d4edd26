//go:build unix

package clitest

import (
	"bytes"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"
)

// markVar is the variable by which a test finds all processes that it has started: they inherit it.
const markVar = "TIDEOVER_TEST_MARK"

// TestBinary returns the path of the test binary, which runs the helpers.
func TestBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Command returns a command that runs the tideover binary. All processes that it starts have the
// mark in their environment.
func Command(t *testing.T, args ...string) (cmd *exec.Cmd, mark string) {
	t.Helper()
	cmd = exec.CommandContext(testwait.Context(t), CommandPath(t), args...)
	mark = fmt.Sprintf("%s=%d.%s", markVar, os.Getpid(), crand.Text())
	// By default, a program with the race detector, such as the helpers, sleeps for a second at
	// its end.
	cmd.Env = append(os.Environ(), mark, "GORACE=atexit_sleep_ms=0", "XDG_STATE_HOME="+StateHome(t))
	cmd.WaitDelay = time.Minute
	return cmd, mark
}

// stateHomes has the state folder of each test, by its name.
var stateHomes sync.Map

// StateHome returns the state folder of a test. It is the same for all commands of the test,
// because the processes of a user share accounts.
func StateHome(t *testing.T) string {
	t.Helper()
	path, known := stateHomes.LoadOrStore(t.Name(), filepath.Join(testfile.ShortTemp(), "to"+strings.ToLower(crand.Text()[:10])))
	if !known {
		t.Cleanup(func() {
			stateHomes.Delete(t.Name())
			_ = os.RemoveAll(path.(string))
		})
	}
	return path.(string)
}

// Outcome is how a command ended, and what it wrote.
type Outcome struct {
	Code        int
	Out, Stderr string
}

// Finish runs the command to its end and returns its exit code and output.
func Finish(t *testing.T, cmd *exec.Cmd) Outcome {
	t.Helper()
	var out, stderr bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("run %q: %v; stderr %q", cmd.Args[1:], err, stderr.String())
	}
	return Outcome{ExitCode(cmd), out.String(), stderr.String()}
}

// ExitCode returns the value that a shell would have in $?.
func ExitCode(cmd *exec.Cmd) int {
	if sig := DiedOf(cmd); sig != 0 {
		return 128 + int(sig)
	}
	return cmd.ProcessState.ExitCode()
}

// DiedOf returns the signal that killed the command; 0 if it exited.
func DiedOf(cmd *exec.Cmd) syscall.Signal {
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return status.Signal()
	}
	return 0
}

// Run runs tideover with empty standard input. Commands that start processes or serve run as a
// process, because they handle the signals and children of their process; all others run in this
// process.
func Run(t *testing.T, args ...string) Outcome {
	t.Helper()
	if len(args) > 0 && slices.Contains([]string{"exec", "watch", "serve", "gateway", "chaos"}, args[0]) {
		cmd, _ := Command(t, args...)
		return Finish(t, cmd)
	}
	return InProcess(t, args...)
}

// InProcess runs tideover in this process.
func InProcess(t *testing.T, args ...string) Outcome {
	t.Helper()
	in, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, readOut := capture(t)
	stderr, readErr := capture(t)
	code := runInProcess(args, in, out, stderr)
	return Outcome{code, readOut(), readErr()}
}

// capture returns a pipe to write to, and a function that closes the pipe and returns the text that
// was written to it.
func capture(t *testing.T) (w *os.File, read func() string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan string, 1)
	go func() {
		defer r.Close()
		text, _ := io.ReadAll(r)
		written <- string(text)
	}()
	return w, func() string {
		_ = w.Close()
		return <-written
	}
}

// Quick is a policy that retries at once.
const Quick = "fixed(0s) attempts=3"

// Survivors returns the running processes with the mark.
func Survivors(t *testing.T, mark string) (found []string) {
	t.Helper()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("needs /proc to see who is left")
	}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range files {
		if env, _ := os.ReadFile(name); bytes.Contains(env, []byte(mark)) {
			line, _ := os.ReadFile(filepath.Dir(name) + "/cmdline")
			found = append(found, filepath.Base(filepath.Dir(name))+" "+string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return found
}

// WantNoProcess checks that no process with the mark runs.
func WantNoProcess(t *testing.T, mark string) {
	t.Helper()
	if left := Survivors(t, mark); len(left) > 0 {
		t.Errorf("left running: %q", left)
	}
}

// CountLines returns the number of lines of the file; 0 if it does not exist.
func CountLines(name string) int {
	data, _ := os.ReadFile(name)
	return bytes.Count(data, []byte("\n"))
}

// WantCode checks the exit code.
func WantCode(t *testing.T, got Outcome, want int) {
	t.Helper()
	if got.Code != want {
		t.Errorf("exit code = %d, want %d; stdout %q, stderr %q", got.Code, want, got.Out, got.Stderr)
	}
}

// WantIn checks that the text has the part.
func WantIn(t *testing.T, what, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%s = %q, want %q in it", what, text, part)
	}
}

// Atoi returns the number at the start of the text; 0 if there is none.
func Atoi(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

// Background is a tideover that runs in the background.
type Background struct {
	*exec.Cmd
	T      *testing.T
	Mark   string
	Folder string
	Errors bytes.Buffer
	waited bool
}

// Begin starts the process. It is killed at the end of the test, unless the test has waited for its end.
func (s *Background) Begin() {
	s.T.Helper()
	if err := s.Start(); err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		if !s.waited {
			_ = s.Process.Kill()
			_ = s.Wait()
		}
	})
}

// AwaitSign waits until the command has written a whole line to the file with this name in $DIR, and
// returns the text.
func (s *Background) AwaitSign(name string) string {
	s.T.Helper()
	var text string
	testwait.Until(s.T, "sign "+name, func() bool {
		data, _ := os.ReadFile(filepath.Join(s.Folder, name))
		text = string(data)
		return strings.HasSuffix(text, "\n")
	})
	return strings.TrimSpace(text)
}

// Signal sends a signal to the process.
func (s *Background) Signal(sig syscall.Signal) {
	s.T.Helper()
	if err := s.Process.Signal(sig); err != nil {
		s.T.Fatal(err)
	}
}

// End waits for the end of the process.
func (s *Background) End() Outcome {
	s.T.Helper()
	s.waited = true
	_ = s.Wait()
	return Outcome{ExitCode(s.Cmd), "", s.Errors.String()}
}

// Alive reports whether there is a process with this id.
func Alive(pid string) bool {
	n, _ := strconv.Atoi(pid)
	return syscall.Kill(n, 0) == nil
}

// OnlyLinux skips the test on other systems.
func OnlyLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs a child subreaper")
	}
}

// Offered returns those of the names that a completion offers, with a description.
func Offered(completion Outcome, names ...string) (list []string) {
	for _, name := range names {
		if strings.Contains("\n"+completion.Out, "\n"+name+"\t") {
			list = append(list, name)
		}
	}
	return list
}
