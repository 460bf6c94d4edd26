//go:build unix

package exec_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// tree is the beginning of a script. It starts a child, a child in a session of its own, and an
// orphan in a session of its own.
const tree = `
	sh -c 'echo $$ > $DIR/child; sleep 600' >/dev/null 2>&1 &
	setsid sh -c 'echo $$ > $DIR/escaped; sleep 600' >/dev/null 2>&1 &
	(setsid sh -c 'echo $$ > $DIR/orphan; sleep 600' >/dev/null 2>&1 &)
	while ! test -s $DIR/child -a -s $DIR/escaped -a -s $DIR/orphan; do sleep 0.01; done
	echo $$ > $DIR/ready; `

func TestSignalEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, "exec", "--", "sh", "-c", tree+"wait")
			s.AwaitSign("ready")
			s.Signal(sig)
			got := s.End()
			clitest.WantNoProcess(t, s.Mark)
			clitest.WantCode(t, got, 128+int(sig))
			if died := clitest.DiedOf(s.Cmd); died != sig {
				t.Errorf("killed by signal %d, want %d: the parent process must see it", died, sig)
			}
			if sig == syscall.SIGINT {
				clitest.WantIn(t, "stderr", got.Stderr, "tideover: interrupted after 1 attempt in ")
				return
			}
			clitest.WantIn(t, "stderr", got.Stderr, "tideover: gave up after 1 attempt in ")
			clitest.WantIn(t, "stderr", got.Stderr, "ended by signal: "+sig.String())
		})
	}
}

func TestSignalReachesChildAndGrandchildren(t *testing.T) {
	t.Parallel()
	s := start(t, "exec", "--", "sh", "-c", `
		sh -c 'trap "echo got > $DIR/grandchild; exit" TERM; echo > $DIR/up; while :; do sleep 0.01; done' &
		trap 'echo got > $DIR/child; wait; exit 5' TERM
		while ! test -s $DIR/up; do sleep 0.01; done
		echo > $DIR/ready
		while :; do sleep 0.01; done`)
	s.AwaitSign("ready")
	s.Signal(syscall.SIGTERM)
	s.AwaitSign("child")
	s.AwaitSign("grandchild")
	clitest.WantCode(t, s.End(), 5) // the command has handled the signal and exited with its own code
	clitest.WantNoProcess(t, s.Mark)
}

func TestGracefulSuccessAfterTermIsSuccess(t *testing.T) {
	t.Parallel()
	s := start(t, "exec", "--", "sh", "-c", `trap 'exit 0' TERM; echo > $DIR/ready; while :; do sleep 0.01; done`)
	s.AwaitSign("ready")
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
}

func TestChildThatIgnoresTermIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	s := start(t, "exec", "--grace", "100ms", "--", "sh", "-c",
		`trap '' TERM; sh -c 'echo > $DIR/ready; sleep 600' & sleep 600; sleep 600`)
	s.AwaitSign("ready")
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 143)
	clitest.WantNoProcess(t, s.Mark)
}

// A process that has left the process group gets TERM together with the command, not only after the
// grace period of the command. Here the command ends only after that process has got the signal.
func TestGraceIsCountedOnce(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	s := start(t, "exec", "--grace", "1d", "--", "sh", "-c", `
		trap : TERM
		setsid sh -c 'trap "echo > $DIR/told; exit" TERM; echo $$ > $DIR/escaped; while :; do sleep 0.05; done' >/dev/null 2>&1 &
		while ! test -s $DIR/escaped; do sleep 0.05; done
		echo > $DIR/ready
		while ! test -e $DIR/told; do sleep 0.05; done
		trap - TERM
		kill $$`)
	s.AwaitSign("ready")
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 143)
	clitest.WantNoProcess(t, s.Mark)
}

func TestTimeoutKillsWhatIgnoresTerm(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	s := start(t, "exec", "--grace", "50ms", "--attempt-timeout", "1s", "--policy", "fixed(0s) attempts=2", "--", "sh", "-c",
		`trap '' TERM; `+tree+`wait; sleep 600`)
	got := s.End()
	clitest.WantCode(t, got, 124)
	clitest.WantNoProcess(t, s.Mark)
	// An attempt may be killed before it has written its line.
	if n := strings.Count(got.Stderr, "timed out after 1s"); n != 2 {
		t.Errorf("attempts = %d, want 2; stderr %q", n, got.Stderr)
	}
}

func TestLeftoversAreEndedBeforeTheNextAttempt(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	s := start(t, "exec", "--policy", "fixed(0s) attempts=2", "--", "sh", "-c", `
		if test $TIDEOVER_ATTEMPT = 2; then
			for who in child escaped orphan; do kill -0 $(cat $DIR/$who) 2>/dev/null && echo $who >> $DIR/overlap; done
			exit 0
		fi
		`+tree+`exit 1`)
	clitest.WantCode(t, s.End(), 0)
	if data, err := os.ReadFile(filepath.Join(s.Folder, "overlap")); err == nil {
		t.Errorf("still there in the second attempt: %q", data)
	}
	clitest.WantNoProcess(t, s.Mark)
}

func TestDaemonSurvivesSuccess(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	s := start(t, "exec", "--", "sh", "-c", tree+"exit 0")
	clitest.WantCode(t, s.End(), 0)
	for _, name := range []string{"child", "escaped", "orphan"} {
		pid := s.AwaitSign(name)
		if !clitest.Alive(pid) {
			t.Errorf("%s was ended after a success", name)
		}
		n, _ := strconv.Atoi(pid)
		group, _ := syscall.Getpgid(n)
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	testwait.Until(t, "the daemons are gone", func() bool { return len(clitest.Survivors(t, s.Mark)) == 0 })
}

func TestChildrenFromBeforeAreNotTouched(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	dir := t.TempDir()
	cmd, mark := clitest.Command(t)
	cmd.Args = []string{"sh", "-c", fmt.Sprintf(`sleep 600 >/dev/null 2>&1 & echo $! > %s/sleep; exec %s exec -p '%s' -- false`, dir, clitest.CommandPath(t), clitest.Quick)}
	cmd.Path, _ = exec.LookPath("sh")
	clitest.WantCode(t, clitest.Finish(t, cmd), 1)
	data, _ := os.ReadFile(filepath.Join(dir, "sleep"))
	pid := strings.TrimSpace(string(data))
	if !clitest.Alive(pid) {
		t.Error("a child that tideover was born with has been ended")
	}
	n, _ := strconv.Atoi(pid)
	_ = syscall.Kill(n, syscall.SIGKILL)
	testwait.Until(t, "the sleep is gone", func() bool { return len(clitest.Survivors(t, mark)) == 0 })
}

// A process that existed before exec ends while exec runs, so that exec inherits its children. exec
// does not end these.
func TestOrphansOfChildrenFromBeforeAreNotTouched(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	dir := t.TempDir()
	cmd, mark := clitest.Command(t)
	cmd.Env = append(cmd.Env, "DIR="+dir, "TIDEOVER="+clitest.CommandPath(t))
	cmd.Args = []string{"sh", "-c", `
		(sh -c 'echo $$ > $DIR/foreign; exec sleep 600' & while ! test -e $DIR/go; do sleep 0.01; done) >/dev/null 2>&1 &
		while ! test -s $DIR/foreign; do sleep 0.01; done
		exec $TIDEOVER exec -p '` + clitest.Quick + `' -- sh -c '
			rm -f $DIR/own
			touch $DIR/go
			while ! grep -q "^PPid:.$PPID$" /proc/$(cat $DIR/foreign)/status; do sleep 0.01; done
			(setsid sh -c "echo \$\$ > $DIR/own; exec sleep 600" >/dev/null 2>&1 &)
			while ! test -s $DIR/own; do sleep 0.01; done
			exit 1'`}
	cmd.Path, _ = exec.LookPath("sh")
	clitest.WantCode(t, clitest.Finish(t, cmd), 1)
	pid := func(name string) string {
		data, _ := os.ReadFile(filepath.Join(dir, name))
		if len(data) == 0 {
			t.Fatalf("no number in %s", name)
		}
		return strings.TrimSpace(string(data))
	}
	if !clitest.Alive(pid("foreign")) {
		t.Error("the child of a child that tideover was born with has been ended")
	}
	if clitest.Alive(pid("own")) {
		t.Error("what the command left behind has not been ended")
	}
	_ = syscall.Kill(clitest.Atoi(pid("foreign")), syscall.SIGKILL)
	testwait.Until(t, "the foreign process is gone", func() bool { return len(clitest.Survivors(t, mark)) == 0 })
}

func TestSignalEndsAWaitBetweenAttempts(t *testing.T) {
	t.Parallel()
	events := filepath.Join(t.TempDir(), "events")
	s := start(t, "exec", "--policy", "fixed(1h) attempts=3", "--events", events, "--", "sh", "-c", "exit 3")
	testwait.Until(t, "the wait begins", func() bool {
		data, _ := os.ReadFile(events)
		return strings.Contains(string(data), `"kind":"waiting"`)
	})
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 143)
}

func TestWindowChangeAndUserSignalsAreForwarded(t *testing.T) {
	t.Parallel()
	for _, sig := range []string{"WINCH", "USR1", "USR2"} {
		t.Run(sig, func(t *testing.T) {
			t.Parallel()
			number := map[string]syscall.Signal{"WINCH": syscall.SIGWINCH, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2}[sig]
			s := start(t, "exec", "--", "sh", "-c", `trap 'exit 0' `+sig+`; echo > $DIR/ready; while :; do sleep 0.01; done`)
			s.AwaitSign("ready")
			s.Signal(number)
			clitest.WantCode(t, s.End(), 0)
		})
	}
}

func TestIgnoredHangupStaysIgnored(t *testing.T) {
	t.Parallel()
	s := &clitest.Background{T: t, Folder: t.TempDir()}
	s.Cmd, s.Mark = clitest.Command(t)
	s.Env = append(s.Env, "DIR="+s.Folder)
	s.Args = []string{"sh", "-c", `trap '' HUP; exec "$0" exec -- sh -c 'echo $$ > $DIR/ready; while ! test -e $DIR/go; do sleep 0.01; done'`, clitest.CommandPath(t)}
	s.Path, _ = exec.LookPath("sh")
	s.Begin()
	pid, _ := strconv.Atoi(s.AwaitSign("ready"))
	s.Signal(syscall.SIGHUP)
	_ = syscall.Kill(pid, syscall.SIGHUP)
	if err := os.WriteFile(filepath.Join(s.Folder, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	clitest.WantCode(t, s.End(), 0)
}

// tideover has no permission to signal a child, as with sudo. It reports the child and waits for
// its end.
func TestChildThatMayNotBeSignalledIsWaitedFor(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to make a file setuid")
	}
	dir, err := os.MkdirTemp("/tmp", "tideover-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// Copy the binaries, because other users can't read the folders that they are in.
	plain, setuid := filepath.Join(dir, "tideover"), filepath.Join(dir, "setuid")
	copyFile(t, clitest.CommandPath(t), plain)
	copyFile(t, clitest.TestBinary(t), setuid)
	for name, mode := range map[string]os.FileMode{dir: 0o755, plain: 0o755, setuid: 0o755 | os.ModeSetuid} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	const nobody = 65534
	s := &clitest.Background{T: t, Folder: dir}
	s.Cmd, s.Mark = clitest.Command(t, "exec", "-n", "1", "--grace", "20ms", "--attempt-timeout", "3s", "--", setuid, "helper:root", filepath.Join(dir, "go"))
	s.Path = plain
	s.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.Stdout, s.Stderr = w, w
	s.Begin()
	w.Close()
	text := ""
	buf := make([]byte, 4096)
	for !strings.Contains(text, "may not be signalled") {
		n, err := out.Read(buf)
		if text += string(buf[:n]); err != nil {
			t.Fatalf("output = %q, %v; want a notice", text, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(out)
	got := s.End()
	if got.Code != 124 {
		t.Errorf("exit code = %d, want 124; output %q", got.Code, text+string(rest))
	}
	clitest.WantNoProcess(t, s.Mark)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
