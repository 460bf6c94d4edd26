//go:build unix && !linux

package process

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

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
