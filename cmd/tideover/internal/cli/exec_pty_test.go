//go:build unix

package cli

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
)

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestOnATerminalTheCommandSeesIt(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, "exec", "--", "sh", "-c", `test -t 0 && test -t 1 && test -t 2 && read line && echo "read $line"`)
	s.write("hello\n")
	s.expect("read hello")
	s.wantCode(0)
}

func TestOnATerminalEveryAttemptIsInTheForeground(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, "exec", "--policy", quick, "--", self(t), "helper:foreground", "3")
	s.wantCode(0)
	for _, want := range []string{"attempt 1 in the foreground", "attempt 2 in the foreground", "attempt 3 in the foreground"} {
		s.expect(want)
	}
}

// The command must not inherit the signal handling of tideover.
func TestSignalStateOfTheCommandIsUntouched(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	const show = `grep -E "^Sig(Blk|Ign)" /proc/self/status`
	s := underShell(t, `sh -c '`+show+`'; "$0" exec -q -p '`+quick+`' -- sh -c '`+show+`; test $TIDEOVER_ATTEMPT = 3'; true | "$0" exec -- sh -c '`+show+`'`)
	s.wait()
	<-s.done
	for _, name := range []string{"SigBlk", "SigIgn"} {
		states := regexp.MustCompile(name+`:\s*\w+`).FindAllString(s.screen(), -1)
		if len(states) != 5 || len(slices.Compact(slices.Clone(states))) != 1 {
			t.Errorf("%s without us, in three attempts on a terminal, and in a pipe: %q", name, states)
		}
	}
}

func TestOnATerminalTheCommandSeesWindowChanges(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, "exec", "--", self(t), "helper:winch")
	s.expect("ready")
	if err := pty.Setsize(s.tty, &pty.Winsize{Rows: 24, Cols: 123}); err != nil {
		t.Fatal(err)
	}
	s.expect("columns 123")
	s.wantCode(0)
}

func TestWindowChangeReachesACommandOutsideOfTheForeground(t *testing.T) {
	t.Parallel()
	s := underShell(t, `true | "$0" exec -- sh -c 'trap "echo changed; exit 0" WINCH; echo ready; while :; do sleep 0.01; done'`)
	s.expect("ready")
	if err := pty.Setsize(s.tty, &pty.Winsize{Rows: 24, Cols: 123}); err != nil {
		t.Fatal(err)
	}
	s.expect("changed")
	s.wantCode(0)
}

func TestCtrlCEndsTheCommandAndIsNotRetried(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"death by the signal": {"helper:read"},
		"exit code 130":       {"helper:read", "130"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onTerminal(t, append([]string{"exec", "--policy", "fixed(1h) attempts=3", "--", self(t)}, args...)...)
			s.expect("ready")
			s.write(ctrlC)
			s.wantCode(130)
			s.expect("after 1 attempt")
			s.expect("interrupted after 1 attempt in ")
		})
	}
}

func TestCtrlCEndsAPipedCommandToo(t *testing.T) {
	t.Parallel()
	s := underShell(t, `sleep 0.01 | "$0" exec -p 'fixed(1h) attempts=3' -- "$1" helper:pause`)
	s.expect("ready")
	s.write(ctrlC)
	s.wait()
	wantNoProcess(t, s.mark)
}

func TestCtrlCEndsTheCountdown(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, "exec", "--policy", "fixed(1h) attempts=3", "--", "false")
	s.expect("tideover: attempt 2/3 in ")
	s.write(ctrlC)
	s.wantCode(130)
	s.expect("interrupted after 1 attempt in ")
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
			s := underShell(t, `export GO=`+signpost+`; `+start+`; fg; echo "ended $?"`)
			s.expect("ready")
			s.write(ctrlZ)
			s.expect("Stopped")
			if err := os.WriteFile(signpost, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s.write("hello\n")
			s.expect(map[string]string{"on the terminal": "read hello", "in a pipe": "going"}[name])
			s.expect("ended 0")
			s.wantCode(0)
		})
	}
}

func TestCommandThatIsSlowToStopStopsUsOnce(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	s := underShell(t, `export GO=`+t.TempDir()+`/pid; sleep 0.01 | "$0" exec -- "$1" helper:slowstop
		while ! grep -qs 'State:.T' /proc/$(cat $GO)/status; do sleep 0.01; done; fg; echo "ended $?"`)
	s.expect("ready")
	s.write(ctrlZ)
	s.expect("continued")
	s.expect("ended 0")
	s.wantCode(0)
}

func TestCtrlZDuringACountdownStopsUs(t *testing.T) {
	t.Parallel()
	s := underShell(t, `"$0" exec -p 'fixed(1h) attempts=3' -- false; echo "stopped $?"; fg; echo "ended $?"`)
	s.expect("tideover: attempt 2/3 in ")
	s.write(ctrlZ)
	s.expect("stopped 14")
	testwait.Until(t, "the foreground is tideover's again", func() bool {
		_, since, _ := strings.Cut(s.screen(), "stopped 14")
		return strings.Contains(since, "exec -p") // fg prints the command that it continues
	})
	s.write(ctrlC)
	s.expect("interrupted after 1 attempt in ")
	s.wantCode(130) // the exit code of the shell, which the interrupt ends, too
}

func TestBackgroundJobThatReadsTheTerminalIsStoppedAndContinued(t *testing.T) {
	t.Parallel()
	s := underShell(t, `"$0" exec -- sh -c 'read line; echo "read $line"' & 
		while ! jobs | grep -q Stopped; do sleep 0.01; done; echo was stopped; fg; echo "ended $?"`)
	s.expect("was stopped")
	s.write("hello\n")
	s.expect("read hello")
	s.expect("ended 0")
	s.wantCode(0)
}

// A command whose standard input is a pipe can still read from the terminal, for example a
// password.
func TestPipedCommandGetsTheTerminalWhenItAsks(t *testing.T) {
	t.Parallel()
	s := underShell(t, `echo piped | "$0" exec -- sh -c 'read a; echo asking; read b < /dev/tty; echo "read $a $b"'; echo "ended $?"`)
	s.expect("asking")
	s.write("typed\n")
	s.expect("read piped typed")
	s.expect("ended 0")
	s.wantCode(0)
}

func TestTerminalModesComeBackAfterACommandThatWasCutShort(t *testing.T) {
	t.Parallel()
	s := underShell(t, `stty -a | grep -o -- '-\?icanon'; "$0" exec -n 1 --attempt-timeout 1s -- sh -c 'stty raw -echo; echo raw; sleep 600'; stty -a | grep -o -- '-\?icanon'; echo "ended $?"`)
	s.expect("ended 0")
	s.wait()
	if got := regexp.MustCompile(`-?icanon`).FindAllString(s.screen(), -1); len(got) != 2 || got[0] != got[1] {
		t.Errorf("modes before and after = %q", got)
	}
}

func TestCountdownRewritesItselfAndIsErased(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, "exec", "--policy", "fixed(1200ms) attempts=2", "--", "sh", "-c", "echo attempt-$TIDEOVER_ATTEMPT; exit 4")
	s.wantCode(4)
	<-s.done
	screen := s.screen()
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

func TestCountdownFitsANarrowTerminal(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, "exec", "--policy", "fixed(1h) attempts=3", "--", "sh", "-c", "stty cols 20; exit 1")
	s.expect(clearLine + "tideover: attempt 2")
	s.write(ctrlC)
	s.wantCode(130)
	<-s.done
	if strings.Contains(s.screen(), clearLine+"tideover: attempt 2/") {
		t.Errorf("the countdown is wider than the terminal's 20 columns: %q", s.screen())
	}
}

func TestCountdownIsNotDrawnInTheBackground(t *testing.T) {
	t.Parallel()
	s := underShell(t, `"$0" exec -p 'fixed(1500ms) attempts=2' -- false; bg >/dev/null; echo in the background; wait; echo over`)
	s.expect("tideover: attempt 2/2 in ")
	s.write(ctrlZ)
	s.expect("over")
	_, since, _ := strings.Cut(s.screen(), "in the background")
	if strings.Contains(since, "\x1b") {
		t.Errorf("drawn in the background: %q", since)
	}
	s.wait()
}

func TestNoCountdownWhenNotWanted(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, "exec", "--no-countdown", "--policy", "fixed(1s) attempts=2", "--", "false")
	s.wantCode(1)
	if strings.Contains(s.screen(), "\x1b") {
		t.Errorf("the terminal shows %q", s.screen())
	}
}

func TestTermOnATerminalEndsTheCommandAndGivesTheTerminalBack(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, "exec", "--", self(t), "helper:read")
	s.expect("ready")
	leader := s.cmd.Process.Pid
	group, err := unix.IoctlGetInt(int(s.tty.Fd()), unix.TIOCGPGRP)
	if err != nil || group == leader {
		t.Errorf("foreground = %d, %v; want the command's group, not %d", group, err, leader)
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	s.wantCode(143)
}
