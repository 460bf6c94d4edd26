//go:build unix

package exec_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestOnATerminalTheCommandSeesIt(t *testing.T) {
	t.Parallel()
	s := clitest.OnTerminal(t, "exec", "--", "sh", "-c", `test -t 0 && test -t 1 && test -t 2 && read line && echo "read $line"`)
	s.Write("hello\n")
	s.Expect("read hello")
	s.WantCode(0)
}

func TestOnATerminalEveryAttemptIsInTheForeground(t *testing.T) {
	t.Parallel()
	s := clitest.OnTerminal(t, "exec", "--policy", clitest.Quick, "--", clitest.TestBinary(t), "helper:foreground", "3")
	s.WantCode(0)
	for _, want := range []string{"attempt 1 in the foreground", "attempt 2 in the foreground", "attempt 3 in the foreground"} {
		s.Expect(want)
	}
}

// The command must not inherit the signal handling of tideover.
func TestSignalStateOfTheCommandIsUntouched(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	const show = `grep -E "^Sig(Blk|Ign)" /proc/self/status`
	s := clitest.UnderShell(t, `sh -c '`+show+`'; "$0" exec -q -p '`+clitest.Quick+`' -- sh -c '`+show+`; test $TIDEOVER_ATTEMPT = 3'; true | "$0" exec -- sh -c '`+show+`'`)
	s.Wait()
	<-s.Done
	for _, name := range []string{"SigBlk", "SigIgn"} {
		states := regexp.MustCompile(name+`:\s*\w+`).FindAllString(s.Screen(), -1)
		if len(states) != 5 || len(slices.Compact(slices.Clone(states))) != 1 {
			t.Errorf("%s without us, in three attempts on a terminal, and in a pipe: %q", name, states)
		}
	}
}

func TestOnATerminalTheCommandSeesWindowChanges(t *testing.T) {
	t.Parallel()
	s := clitest.OnTerminal(t, "exec", "--", clitest.TestBinary(t), "helper:winch")
	s.Expect("ready")
	if err := pty.Setsize(s.Tty, &pty.Winsize{Rows: 24, Cols: 123}); err != nil {
		t.Fatal(err)
	}
	s.Expect("columns 123")
	s.WantCode(0)
}

func TestWindowChangeReachesACommandOutsideOfTheForeground(t *testing.T) {
	t.Parallel()
	s := clitest.UnderShell(t, `true | "$0" exec -- sh -c 'trap "echo changed; exit 0" WINCH; echo ready; while :; do sleep 0.01; done'`)
	s.Expect("ready")
	if err := pty.Setsize(s.Tty, &pty.Winsize{Rows: 24, Cols: 123}); err != nil {
		t.Fatal(err)
	}
	s.Expect("changed")
	s.WantCode(0)
}

func TestCtrlCEndsTheCommandAndIsNotRetried(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"death by the signal": {"helper:read"},
		"exit code 130":       {"helper:read", "130"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := clitest.OnTerminal(t, append([]string{"exec", "--policy", "fixed(1h) attempts=3", "--", clitest.TestBinary(t)}, args...)...)
			s.Expect("ready")
			s.Write(clitest.CtrlC)
			s.WantCode(130)
			s.Expect("after 1 attempt")
			s.Expect("interrupted after 1 attempt in ")
		})
	}
}

func TestCtrlCEndsAPipedCommandToo(t *testing.T) {
	t.Parallel()
	s := clitest.UnderShell(t, `sleep 0.01 | "$0" exec -p 'fixed(1h) attempts=3' -- "$1" helper:pause`)
	s.Expect("ready")
	s.Write(clitest.CtrlC)
	s.Wait()
	clitest.WantNoProcess(t, s.Mark)
}

func TestCtrlCEndsTheCountdown(t *testing.T) {
	t.Parallel()
	s := clitest.OnTerminal(t, "exec", "--policy", "fixed(1h) attempts=3", "--", "false")
	s.Expect("tideover: attempt 2/3 in ")
	s.Write(clitest.CtrlC)
	s.WantCode(130)
	s.Expect("interrupted after 1 attempt in ")
}

func TestCtrlZStopsBothAndForegroundContinuesBoth(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]string{
		"on the terminal": `"$0" exec -- "$1" helper:read`,
		"in a pipe":       `sleep 0.01 | "$0" exec -- "$1" helper:pause`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signpost := t.TempDir() + "/go"
			s := clitest.UnderShell(t, `export GO=`+signpost+`; `+start+`; fg; echo "ended $?"`)
			s.Expect("ready")
			s.Write(clitest.CtrlZ)
			s.Expect("Stopped")
			if err := os.WriteFile(signpost, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s.Write("hello\n")
			s.Expect(map[string]string{"on the terminal": "read hello", "in a pipe": "going"}[name])
			s.Expect("ended 0")
			s.WantCode(0)
		})
	}
}

func TestCommandThatIsSlowToStopStopsUsOnce(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	s := clitest.UnderShell(t, `export GO=`+t.TempDir()+`/pid; sleep 0.01 | "$0" exec -- "$1" helper:slowstop
		while ! grep -qs 'State:.T' /proc/$(cat $GO)/status; do sleep 0.01; done; fg; echo "ended $?"`)
	s.Expect("ready")
	s.Write(clitest.CtrlZ)
	s.Expect("continued")
	s.Expect("ended 0")
	s.WantCode(0)
}

func TestCtrlZDuringACountdownStopsUs(t *testing.T) {
	t.Parallel()
	s := clitest.UnderShell(t, `"$0" exec -p 'fixed(1h) attempts=3' -- false; echo "stopped $?"; fg; echo "ended $?"`)
	s.Expect("tideover: attempt 2/3 in ")
	s.Write(clitest.CtrlZ)
	s.Expect("stopped 14")
	testwait.Until(t, "the foreground is tideover's again", func() bool {
		_, since, _ := strings.Cut(s.Screen(), "stopped 14")
		return strings.Contains(since, "exec -p") // fg prints the command that it continues
	})
	s.Write(clitest.CtrlC)
	s.Expect("interrupted after 1 attempt in ")
	s.WantCode(130) // the exit code of the shell, which the interrupt ends, too
}

func TestBackgroundJobThatReadsTheTerminalIsStoppedAndContinued(t *testing.T) {
	t.Parallel()
	s := clitest.UnderShell(t, `"$0" exec -- sh -c 'read line; echo "read $line"' & 
		while ! jobs | grep -q Stopped; do sleep 0.01; done; echo was stopped; fg; echo "ended $?"`)
	s.Expect("was stopped")
	s.Write("hello\n")
	s.Expect("read hello")
	s.Expect("ended 0")
	s.WantCode(0)
}

// A command whose standard input is a pipe can still read from the terminal, for example a
// password.
func TestPipedCommandGetsTheTerminalWhenItAsks(t *testing.T) {
	t.Parallel()
	s := clitest.UnderShell(t, `echo piped | "$0" exec -- sh -c 'read a; echo asking; read b < /dev/tty; echo "read $a $b"'; echo "ended $?"`)
	s.Expect("asking")
	s.Write("typed\n")
	s.Expect("read piped typed")
	s.Expect("ended 0")
	s.WantCode(0)
}

func TestTerminalModesComeBackAfterACommandThatWasCutShort(t *testing.T) {
	t.Parallel()
	s := clitest.UnderShell(t, `stty -a | grep -o -- '-\?icanon'; "$0" exec -n 1 --attempt-timeout 1s -- sh -c 'stty raw -echo; echo raw; sleep 600'; stty -a | grep -o -- '-\?icanon'; echo "ended $?"`)
	s.Expect("ended 0")
	s.Wait()
	if got := regexp.MustCompile(`-?icanon`).FindAllString(s.Screen(), -1); len(got) != 2 || got[0] != got[1] {
		t.Errorf("modes before and after = %q", got)
	}
}

func TestCountdownRewritesItselfAndIsErased(t *testing.T) {
	t.Parallel()
	s := clitest.OnTerminal(t, "exec", "--policy", "fixed(1200ms) attempts=2", "--", "sh", "-c", "echo attempt-$TIDEOVER_ATTEMPT; exit 4")
	s.WantCode(4)
	<-s.Done
	screen := s.Screen()
	if n := strings.Count(screen, "\r\x1b[Ktideover: attempt 2/2 in "); n < 2 {
		t.Errorf("the countdown was drawn %d times: %q", n, screen)
	}
	if !regexp.MustCompile(`in [0-9.]+s; press Ctrl-C to stop\r\x1b\[Kattempt-2\r\n`).MatchString(screen) {
		t.Errorf("the countdown was not erased before the attempt: %q", screen)
	}
	if strings.Contains(strings.ReplaceAll(screen, "in 1.2s\r\n", ""), "s\n") {
		t.Errorf("the countdown takes more than one line: %q", screen)
	}
}

// clearLine is written before a countdown is drawn again.
const clearLine = "\r\x1b[K"

func TestCountdownFitsANarrowTerminal(t *testing.T) {
	t.Parallel()
	s := clitest.OnTerminal(t, "exec", "--policy", "fixed(1h) attempts=3", "--", "sh", "-c", "stty cols 20; exit 1")
	s.Expect(clearLine + "tideover: attempt 2")
	s.Write(clitest.CtrlC)
	s.WantCode(130)
	<-s.Done
	if strings.Contains(s.Screen(), clearLine+"tideover: attempt 2/") {
		t.Errorf("the countdown is wider than the terminal's 20 columns: %q", s.Screen())
	}
}

func TestCountdownIsNotDrawnInTheBackground(t *testing.T) {
	t.Parallel()
	s := clitest.UnderShell(t, `"$0" exec -p 'fixed(1500ms) attempts=2' -- false; bg >/dev/null; echo in the background; wait; echo over`)
	s.Expect("tideover: attempt 2/2 in ")
	s.Write(clitest.CtrlZ)
	s.Expect("over")
	_, since, _ := strings.Cut(s.Screen(), "in the background")
	if strings.Contains(since, "\x1b") {
		t.Errorf("drawn in the background: %q", since)
	}
	s.Wait()
}

func TestNoCountdownWhenNotWanted(t *testing.T) {
	t.Parallel()
	s := clitest.OnTerminal(t, "exec", "--no-countdown", "--policy", "fixed(1s) attempts=2", "--", "false")
	s.WantCode(1)
	if strings.Contains(s.Screen(), "\x1b") {
		t.Errorf("the terminal shows %q", s.Screen())
	}
}

func TestTermOnATerminalEndsTheCommandAndGivesTheTerminalBack(t *testing.T) {
	t.Parallel()
	s := clitest.OnTerminal(t, "exec", "--", clitest.TestBinary(t), "helper:read")
	s.Expect("ready")
	leader := s.Cmd.Process.Pid
	group, err := unix.IoctlGetInt(int(s.Tty.Fd()), unix.TIOCGPGRP)
	if err != nil || group == leader {
		t.Errorf("foreground = %d, %v; want the command's group, not %d", group, err, leader)
	}
	_ = s.Cmd.Process.Signal(syscall.SIGTERM)
	s.WantCode(143)
}
