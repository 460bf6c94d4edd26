//go:build unix

package cli

import (
	"bytes"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"
)

// markVar is the variable by which a test finds all processes that it has started: they inherit it.
const markVar = "TIDEOVER_TEST_MARK"

// helpers are commands that tideover runs in tests. The test binary runs a helper if its first
// argument is the name of one.
var helpers = map[string]func([]string){
	"helper:generate":   helpGenerate,
	"helper:foreground": helpForeground,
	"helper:pause":      helpPause,
	"helper:read":       helpRead,
	"helper:winch":      helpWinch,
	"helper:slowstop":   helpSlowStop,
	"helper:root":       helpRoot,
	"helper:relay":      helpRelay,
	"helper:tui":        helpTUI,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && helpers[os.Args[1]] != nil {
		helpers[os.Args[1]](os.Args[2:])
		os.Exit(0)
	}
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) { // as under nohup, or in the background; commands would inherit that
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	code := browsertest.Main(m)
	natstest.StopShared()
	os.Exit(code)
}

// randomBlock returns a MiB of random bytes, always the same.
func randomBlock() []byte {
	block := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(block)
	return block
}

// helpGenerate writes as many bytes as its argument says: the random block repeatedly.
func helpGenerate(args []string) {
	block := randomBlock()
	for left := atoi(args[0]); left > 0; left -= len(block) {
		if _, err := os.Stdout.Write(block[:min(left, len(block))]); err != nil {
			os.Exit(3)
		}
	}
}

// poll returns when the condition holds. The test that started the helper ends it.
func poll(holds func() bool) {
	for !holds() {
		time.Sleep(5 * time.Millisecond) // real clock: a helper process polls, without a limit
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// awaitForeground returns when the process is in the terminal's foreground. A command is put there
// some microseconds after its start.
func awaitForeground() {
	poll(func() bool {
		group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
		return err == nil && group == unix.Getpgrp()
	})
}

// helpForeground waits until it is in the terminal's foreground. It succeeds only in the attempt
// whose number is its argument.
func helpForeground(args []string) {
	awaitForeground()
	fmt.Printf("attempt %s in the foreground\n", os.Getenv("TIDEOVER_ATTEMPT"))
	if os.Getenv("TIDEOVER_ATTEMPT") != args[0] {
		os.Exit(1)
	}
}

// helpRead waits for the foreground and reads a line. It is used instead of a shell, which may miss
// signals just after its start. Its optional argument is the exit code after an interrupt.
func helpRead(args []string) {
	if len(args) > 0 {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGINT)
		go func() { <-c; os.Exit(atoi(args[0])) }()
	}
	awaitForeground()
	fmt.Println("ready")
	var line string
	_, _ = fmt.Scanln(&line)
	fmt.Println("read", line)
}

// helpPause prints that it is ready, and waits until the file that $GO names exists.
func helpPause([]string) {
	fmt.Println("ready")
	poll(func() bool { return exists(os.Getenv("GO")) })
	fmt.Println("going")
}

// helpWinch waits for a change of the window size and prints the width.
func helpWinch([]string) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	fmt.Println("ready")
	<-c
	size, _ := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	fmt.Println("columns", size.Col)
}

// helpSlowStop handles SIGTSTP, and stops only after its parent has stopped.
func helpSlowStop([]string) {
	c, continued := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTSTP)
	fmt.Println("ready")
	<-c
	signal.Notify(continued, syscall.SIGCONT)
	poll(func() bool { return stateIs(os.Getppid(), "T") })
	_ = os.WriteFile(os.Getenv("GO"), []byte(fmt.Sprintln(os.Getpid())), 0o600)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-continued
	fmt.Println("continued")
}

// stateIs reports whether the process has this state: a letter as in /proc/PID/status.
func stateIs(pid int, state string) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return strings.Contains(string(status), "\nState:\t"+state)
}

// allStopped reports whether all threads of the process have stopped.
func allStopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	return len(threads) > 0 && !slices.ContainsFunc(threads, func(name string) bool {
		status, _ := os.ReadFile(name)
		return !strings.Contains(string(status), "\nState:\tT")
	})
}

// helpRoot becomes root, which its setuid bit allows, so that its parent can't signal it. It ends
// when the file that its argument names exists.
func helpRoot(args []string) {
	if err := syscall.Setreuid(0, 0); err != nil {
		os.Exit(9)
	}
	fmt.Println("ready")
	poll(func() bool { return exists(args[0]) })
}

// self returns the path of the test binary, which runs the helpers.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// command returns a command that runs the tideover binary. All processes that it starts have the
// mark in their environment.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, mark string) {
	t.Helper()
	cmd = exec.CommandContext(testwait.Context(t), commandPath(t), args...)
	mark = fmt.Sprintf("%s=%d.%s", markVar, os.Getpid(), crand.Text())
	// By default, a program with the race detector, such as the helpers, sleeps for a second at
	// its end.
	cmd.Env = append(os.Environ(), mark, "GORACE=atexit_sleep_ms=0", "XDG_STATE_HOME="+stateHome(t))
	cmd.WaitDelay = time.Minute
	return cmd, mark
}

// stateHomes has the state folder of each test, by its name.
var stateHomes sync.Map

// stateHome returns the state folder of a test. It is the same for all commands of the test,
// because the processes of a user share accounts.
func stateHome(t *testing.T) string {
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

type outcome struct {
	code        int
	out, stderr string
}

// finish runs the command to its end and returns its exit code and output.
func finish(t *testing.T, cmd *exec.Cmd) outcome {
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
	return outcome{exitCode(cmd), out.String(), stderr.String()}
}

// exitCode returns the value that a shell would have in $?.
func exitCode(cmd *exec.Cmd) int {
	if sig := diedOf(cmd); sig != 0 {
		return 128 + int(sig)
	}
	return cmd.ProcessState.ExitCode()
}

// diedOf returns the signal that killed the command; 0 if it exited.
func diedOf(cmd *exec.Cmd) syscall.Signal {
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return status.Signal()
	}
	return 0
}

// tideover runs tideover with empty standard input. Commands that start processes or serve run as a
// process, because they handle the signals and children of their process; all others run in this
// process.
func tideover(t *testing.T, args ...string) outcome {
	t.Helper()
	if len(args) > 0 && slices.Contains([]string{"exec", "watch", "serve", "gateway", "chaos"}, args[0]) {
		cmd, _ := command(t, args...)
		return finish(t, cmd)
	}
	return inProcess(t, args...)
}

// inProcess runs tideover in this process.
func inProcess(t *testing.T, args ...string) outcome {
	t.Helper()
	in, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, readOut := capture(t)
	stderr, readErr := capture(t)
	exit := Run(args, Streams{In: in, Out: out, Err: stderr})
	code := exit.Code
	if exit.Signal != 0 {
		code = 128 + int(exit.Signal)
	}
	return outcome{code, readOut(), readErr()}
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

// quick is a policy that retries at once.
const quick = "fixed(0s) attempts=3"

// survivors returns the running processes with the mark.
func survivors(t *testing.T, mark string) (found []string) {
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

func wantNoProcess(t *testing.T, mark string) {
	t.Helper()
	if left := survivors(t, mark); len(left) > 0 {
		t.Errorf("left running: %q", left)
	}
}

// lines returns the number of lines of the file; 0 if it does not exist.
func lines(name string) int {
	data, _ := os.ReadFile(name)
	return bytes.Count(data, []byte("\n"))
}

func wantCode(t *testing.T, got outcome, want int) {
	t.Helper()
	if got.code != want {
		t.Errorf("exit code = %d, want %d; stdout %q, stderr %q", got.code, want, got.out, got.stderr)
	}
}

func wantIn(t *testing.T, what, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%s = %q, want %q in it", what, text, part)
	}
}

func atoi(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}
