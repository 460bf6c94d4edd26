package process

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Die ends the process with the signal, so that the parent process sees the cause: shells and make
// stop at a child that an interrupt killed, and continue after one that only exited with 130. If
// the signal has no effect, as for the first process of a container, it exits with 128+n.
func Die(sig syscall.Signal) {
	if sig == syscall.SIGQUIT {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // a core dump of tideover is useless
	}
	runtime.LockOSThread() // the signal goes to this thread and acts before the call returns
	var dfl [16]uint64     // see withDefault
	if sigaction(sig, &dfl, nil) {
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
	}
	os.Exit(CodeSignal + int(sig))
}
