//go:build unix && !linux

package process

import (
	"os"
	"os/signal"
	"syscall"
)

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
