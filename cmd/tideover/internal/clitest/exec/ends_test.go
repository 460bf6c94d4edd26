//go:build unix

package exec_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

const ctrlBackslash = "\x1c"

// inScript runs a script in a shell without job control, on a terminal. All processes except the
// command of exec are then in one process group. $0 is tideover.
func inScript(t *testing.T, script string) *clitest.Terminal {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash, which tells death by a signal from an exit code")
	}
	cmd, mark := clitest.Command(t)
	cmd.Path, cmd.Args = bash, []string{"bash", "--norc", "-c", script, clitest.CommandPath(t), clitest.TestBinary(t)}
	return clitest.StartOnTerminal(t, cmd, mark)
}

func TestCtrlCEndsTheScriptAroundUs(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"sequence": `"$0" exec -n 3 -- "$1" helper:read; echo went on`,
		"loop":     `while :; do "$0" exec -n 3 -- "$1" helper:read; echo went on; done`,
		"pipeline": `"$0" exec -n 3 -- "$1" helper:read | cat; echo went on`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := inScript(t, script)
			s.Expect("ready")
			s.Write(clitest.CtrlC)
			_ = s.Cmd.Wait()
			if clitest.DiedOf(s.Cmd) != syscall.SIGINT || strings.Contains(s.Screen(), "went on") {
				t.Errorf("the shell ended with %v; the terminal shows %q", s.Cmd.ProcessState, s.Screen())
			}
			clitest.WantNoProcess(t, s.Mark)
		})
	}
}

func TestQuitAtTheTerminalIsPassedToWhoeverWaits(t *testing.T) {
	t.Parallel()
	s := clitest.OnTerminal(t, "exec", "-p", "fixed(1h) attempts=3", "--", "sleep", "600")
	testwait.Until(t, "the command has the foreground", func() bool {
		group, err := unix.IoctlGetInt(int(s.Tty.Fd()), unix.TIOCGPGRP)
		return err == nil && group != s.Cmd.Process.Pid
	})
	s.Write(ctrlBackslash)
	s.WantCode(131)
	if sig := clitest.DiedOf(s.Cmd); sig != syscall.SIGQUIT {
		t.Errorf("died of %v, want quit", sig)
	}
}

func TestCtrlCEndsMakeAroundUs(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("needs make")
	}
	file := filepath.Join(t.TempDir(), "Makefile")
	if err := os.WriteFile(file, []byte("all: a b\na:\n\t-$(TIDEOVER) exec -n 3 -- $(HELPER) helper:read\nb:\n\techo went on\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := inScript(t, `exec make -f `+file+` TIDEOVER="$0" HELPER="$1"`)
	s.Expect("ready")
	s.Write(clitest.CtrlC)
	_ = s.Cmd.Wait()
	if strings.Contains(s.Screen(), "went on") {
		t.Errorf("the terminal shows %q", s.Screen())
	}
	clitest.WantNoProcess(t, s.Mark)
}

// A command that handles Ctrl-C and exits with its own code ends as without tideover, so the script
// continues.
func TestOwnCodeAfterCtrlCIsNoDeath(t *testing.T) {
	t.Parallel()
	s := clitest.OnTerminal(t, "exec", "-p", "fixed(1h) attempts=3", "--", clitest.TestBinary(t), "helper:read", "130")
	s.Expect("ready")
	s.Write(clitest.CtrlC)
	s.WantCode(130)
	if sig := clitest.DiedOf(s.Cmd); sig != 0 {
		t.Errorf("died of %v, want exit code 130", sig)
	}
}

func TestHangUpEndsTheAttempts(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"of a command that dies of it":   `echo >> $DIR/attempts; echo ready; read x`,
		"of a command that fails for it": `trap "exit 1" HUP; echo >> $DIR/attempts; echo ready; while :; do sleep 0.01; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := inScript(t, `export DIR=`+dir+`; "$0" exec -p 'fixed(0s) attempts=3' -- sh -c '`+script+`' 2>/dev/null; true`)
			s.Expect("ready")
			_ = s.Cmd.Process.Kill() // the end of the session leader closes the terminal, which sends SIGHUP
			_ = s.Cmd.Wait()
			testwait.Until(t, "all have ended", func() bool { return len(clitest.Survivors(t, s.Mark)) == 0 })
			if n := clitest.CountLines(filepath.Join(dir, "attempts")); n != 1 {
				t.Errorf("attempts = %d, want 1", n)
			}
		})
	}
}
