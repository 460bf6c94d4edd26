//go:build unix && !linux

package process

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Die ends the process by the signal, so that whoever waits for us sees what
// ended us: shells and make stop at a child that died of an interrupt, and go
// on after one that only exited with 130. Where the signal has no effect it
// exits with 128+n, as it does for QUIT, at which Go would print its stacks.
func Die(sig syscall.Signal) {
	if sig != syscall.SIGQUIT {
		signal.Reset(sig)
		_ = syscall.Kill(os.Getpid(), sig)
		time.Sleep(stopWait)
	}
	os.Exit(CodeSignal + int(sig))
}
