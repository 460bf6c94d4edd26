//go:build unix

package clitest

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"

	"github.com/tideover/tideover/internal/testwait"
)

const (
	CtrlC = "\x03"
	CtrlZ = "\x1a"
)

// Terminal is a program on a terminal of its own.
type Terminal struct {
	t    *testing.T
	Cmd  *exec.Cmd
	Tty  *os.File
	Mark string
	mu   sync.Mutex
	text string
	Done chan struct{}
}

// OnTerminal starts tideover on a new terminal, as the leader of its session.
func OnTerminal(t *testing.T, args ...string) *Terminal {
	t.Helper()
	cmd, mark := Command(t, args...)
	return StartOnTerminal(t, cmd, mark)
}

// UnderShell runs the script in a shell with job control, on a new terminal. $0 is tideover, and $1
// is the test binary, which runs helpers.
func UnderShell(t *testing.T, script string) *Terminal {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs a shell with job control")
	}
	cmd, mark := Command(t)
	cmd.Path, cmd.Args = bash, []string{"bash", "--norc", "-c", "set -m; " + script, CommandPath(t), TestBinary(t)}
	return StartOnTerminal(t, cmd, mark)
}

// StartOnTerminal starts the command on a new terminal, as the leader of its session.
func StartOnTerminal(t *testing.T, cmd *exec.Cmd, mark string) *Terminal {
	t.Helper()
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	s := &Terminal{t: t, Cmd: cmd, Tty: tty, Mark: mark, Done: make(chan struct{})}
	go s.read()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = tty.Close()
		<-s.Done
	})
	return s
}

func (s *Terminal) read() {
	defer close(s.Done)
	buf := make([]byte, 4096)
	for {
		n, err := s.Tty.Read(buf)
		s.mu.Lock()
		s.text += string(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Screen returns everything that was written to the terminal.
func (s *Terminal) Screen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

// Expect waits until the text is on the terminal.
func (s *Terminal) Expect(text string) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the terminal shows %q", s.Screen())
		}
	}()
	testwait.Until(s.t, text+" on the terminal", func() bool { return strings.Contains(s.Screen(), text) })
}

// Write types the text.
func (s *Terminal) Write(text string) {
	s.t.Helper()
	if _, err := s.Tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// Wait waits for the end of the program and returns its exit code.
func (s *Terminal) Wait() int {
	s.t.Helper()
	_ = s.Cmd.Wait()
	return ExitCode(s.Cmd)
}

// WantCode waits for the end of the program, checks its exit code, and that no process is left.
func (s *Terminal) WantCode(want int) {
	s.t.Helper()
	if got := s.Wait(); got != want {
		s.t.Errorf("exit code = %d, want %d; the terminal shows %q", got, want, s.Screen())
	}
	WantNoProcess(s.t, s.Mark)
}
