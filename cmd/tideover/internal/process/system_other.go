//go:build unix && !linux

package process

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forkExec starts the command.
func forkExec(cfg *Config, path string, attr *syscall.ProcAttr) (int, error) {
	attr.Sys = &syscall.SysProcAttr{Setpgid: true}
	return syscall.ForkExec(path, cfg.Args, attr)
}

// await waits for a change of the command's state.
func (t *processTree) await(a *attempt) (c change, err error) {
	_, err = syscall.Wait4(a.pid, &c.WaitStatus, syscall.WUNTRACED, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	c.continued = a.continues
	if err != syscall.EINTR { //nolint:errorlint // a bare number
		a.running = a.running && err == nil && c.Stopped()
	}
	return c, err
}

// family finds no descendants on this system, because orphans can't be inherited: only the group
// can be ended.
type family struct{}

type relative struct {
	pid, group int
}

func newFamily() *family { return &family{} }

func (*family) environment() []string { return nil }

func (*family) children() []int { return nil }

func (*family) descendants() []relative { return nil }

// withDefault runs f while TSTP is ignored, so that [stop] can send TSTP to our whole group without a
// signal to us. os/signal can't remove the handler that Notify has installed for TSTP.
func (g *signals) withDefault(sig syscall.Signal, f func()) {
	if sig == syscall.SIGTSTP && !signal.Ignored(sig) {
		signal.Ignore(sig)
		defer signal.Notify(g.sent, sig)
	}
	f()
}

// stop stops this process, and if pid is 0 also the other processes of our group. It stops this
// process with TTIN, which has the same default effect as TSTP and no handler.
func stop(pid int, sig syscall.Signal) {
	if pid == 0 {
		_ = syscall.Kill(pid, sig)
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGTTIN)
}

// withoutTTOU runs f while the signal TTOU is ignored, so that f can change the terminal from the
// background. Then it calls Notify, so that commands do not inherit the ignored signal.
func withoutTTOU(f func()) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
	f()
}

// Die ends the process with the signal, so that the parent process sees the cause: shells and make
// stop at a child that an interrupt killed, and continue after one that only exited with 130. If
// the signal has no effect it exits with 128+n. For QUIT it always exits with 128+n, because the Go
// runtime would print stack traces.
func Die(sig syscall.Signal) {
	if sig != syscall.SIGQUIT {
		signal.Reset(sig)
		_ = syscall.Kill(os.Getpid(), sig)
		time.Sleep(stopWait)
	}
	os.Exit(CodeSignal + int(sig))
}

// queued is the ioctl FIONREAD, which returns how many bytes a pipe holds; it is the same on all of
// these systems.
const queued = 0x4004667f

func growPipe(int) {}

const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
)
