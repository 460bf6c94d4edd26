//go:build unix && !linux

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// withDefault runs f, in which [stop] stops us although Notify has installed a
// handler for TSTP, which nothing in os/signal removes. Ignored, it lets our
// neighbours be stopped without telling us of it.
func (g *signals) withDefault(sig syscall.Signal, f func()) {
	if sig == syscall.SIGTSTP && !signal.Ignored(sig) {
		signal.Ignore(sig)
		defer signal.Notify(g.sent, sig)
	}
	f()
}

// stop stops the process, or with 0 its whole group. We ourselves are stopped
// by TTIN, whose default effect is the same and which we never handle.
func stop(pid int, sig syscall.Signal) {
	if pid == 0 {
		_ = syscall.Kill(pid, sig)
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGTTIN)
}

// withoutTTOU runs f, which may then change the terminal from the background.
// Notify afterwards undoes Ignore for the commands: they get the default.
func withoutTTOU(f func()) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
	f()
}
