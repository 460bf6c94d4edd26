package process

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Die ends the process by the signal, so that whoever waits for us sees what
// ended us: shells and make stop at a child that died of an interrupt, and go
// on after one that only exited with 130. Where the signal has no effect, as
// for the first process of a container, it exits with 128+n.
func Die(sig syscall.Signal) {
	if sig == syscall.SIGQUIT {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // the core would be ours, of no use to anybody
	}
	runtime.LockOSThread() // the signal is for this thread, and acts before the call returns
	var dfl [16]uint64     // see withDefault
	if sigaction(sig, &dfl, nil) {
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
	}
	os.Exit(CodeSignal + int(sig))
}
