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

// withDefault runs f, in which [stop] can stop us although Notify has installed a handler for TSTP
// that os/signal can't remove. Ignoring TSTP lets the other processes of the group be stopped
// without a signal to us.
func (g *signals) withDefault(sig syscall.Signal, f func()) {
	if sig == syscall.SIGTSTP && !signal.Ignored(sig) {
		signal.Ignore(sig)
		defer signal.Notify(g.sent, sig)
	}
	f()
}

// stop stops the process, or with 0 its whole group. It stops ourselves with TTIN, which has the
// same default effect and no handler.
func stop(pid int, sig syscall.Signal) {
	if pid == 0 {
		_ = syscall.Kill(pid, sig)
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGTTIN)
}

// withoutTTOU runs f, which may then change the terminal from the background. Notify afterwards
// restores the default for commands.
func withoutTTOU(f func()) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
	f()
}

// Die ends the process with the signal, so that the parent process sees the cause: shells and make
// stop at a child that an interrupt killed, and continue after one that only exited with 130. If
// the signal has no effect it exits with 128+n. It does the same for QUIT, for which Go would print
// stack traces.
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
