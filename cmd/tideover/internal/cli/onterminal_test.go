//go:build unix

package cli

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"

	"github.com/tideover/tideover/internal/testwait"
)

// onTTY is a program on a terminal of its own.
type onTTY struct {
	t    *testing.T
	cmd  *exec.Cmd
	tty  *os.File
	mark string
	mu   sync.Mutex
	text string
	done chan struct{}
}

// onTerminal starts tideover on a new terminal, as the leader of its session.
func onTerminal(t *testing.T, args ...string) *onTTY {
	t.Helper()
	cmd, mark := command(t, args...)
	return startSession(t, cmd, mark)
}

// underShell runs the script in a shell with job control, on a new terminal. $0 is tideover, and $1
// is the test binary, which runs helpers.
func underShell(t *testing.T, script string) *onTTY {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs a shell with job control")
	}
	cmd, mark := command(t)
	cmd.Path, cmd.Args = bash, []string{"bash", "--norc", "-c", "set -m; " + script, commandPath(t), self(t)}
	return startSession(t, cmd, mark)
}

func startSession(t *testing.T, cmd *exec.Cmd, mark string) *onTTY {
	t.Helper()
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	s := &onTTY{t: t, cmd: cmd, tty: tty, mark: mark, done: make(chan struct{})}
	go s.read()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = tty.Close()
		<-s.done
	})
	return s
}

func (s *onTTY) read() {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
		n, err := s.tty.Read(buf)
		s.mu.Lock()
		s.text += string(buf[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *onTTY) screen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

func (s *onTTY) expect(text string) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the terminal shows %q", s.screen())
		}
	}()
	testwait.Until(s.t, text+" on the terminal", func() bool { return strings.Contains(s.screen(), text) })
}

func (s *onTTY) write(text string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *onTTY) wait() int {
	s.t.Helper()
	_ = s.cmd.Wait()
	return exitCode(s.cmd)
}

func (s *onTTY) wantCode(want int) {
	s.t.Helper()
	if got := s.wait(); got != want {
		s.t.Errorf("exit code = %d, want %d; the terminal shows %q", got, want, s.screen())
	}
	wantNoProcess(s.t, s.mark)
}
