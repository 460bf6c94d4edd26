//go:build unix

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// backgroundProcess is a tideover that runs in the background.
type backgroundProcess struct {
	*exec.Cmd
	t      *testing.T
	mark   string
	dir    string
	stderr bytes.Buffer
	waited bool
}

// start starts tideover. $DIR is a folder in which the command that it runs can write files for the
// test.
func start(t *testing.T, args ...string) *backgroundProcess {
	t.Helper()
	s := &backgroundProcess{t: t, dir: t.TempDir()}
	s.Cmd, s.mark = command(t, args...)
	s.Env = append(s.Env, "DIR="+s.dir)
	s.Stderr = &s.stderr
	s.begin()
	return s
}

func (s *backgroundProcess) begin() {
	s.t.Helper()
	if err := s.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if !s.waited {
			_ = s.Process.Kill()
			_ = s.Wait()
		}
	})
}

// sign waits until the command has written a whole line to the file with this name in $DIR, and
// returns the text.
func (s *backgroundProcess) sign(name string) string {
	s.t.Helper()
	var text string
	testwait.Until(s.t, "sign "+name, func() bool {
		data, _ := os.ReadFile(filepath.Join(s.dir, name))
		text = string(data)
		return strings.HasSuffix(text, "\n")
	})
	return strings.TrimSpace(text)
}

func (s *backgroundProcess) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

func (s *backgroundProcess) wait() outcome {
	s.t.Helper()
	s.waited = true
	_ = s.Wait()
	return outcome{exitCode(s.Cmd), "", s.stderr.String()}
}

func alive(pid string) bool {
	n, _ := strconv.Atoi(pid)
	return syscall.Kill(n, 0) == nil
}

func onlyLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs a child subreaper")
	}
}
