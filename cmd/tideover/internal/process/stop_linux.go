package process

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withDefault runs f while the signal has its default effect. Package os/signal can't do that:
// Notify installs a handler for TSTP that Reset does not remove.
func (*signals) withDefault(sig syscall.Signal, f func()) {
	// The kernel's struct sigaction. Its layout depends on the processor; all zeros mean the default
	// on each.
	var dfl, old [16]uint64
	if !sigaction(sig, &dfl, &old) {
		return
	}
	defer sigaction(sig, &old, nil)
	f()
}

func sigaction(sig syscall.Signal, act, old *[16]uint64) bool {
	const setSize = 8 // size of the signal set; the call fails on MIPS, which has a larger one
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(act)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
	return errno == 0
}

// stop stops the process, or with 0 its whole group.
func stop(pid int, sig syscall.Signal) { _ = syscall.Kill(pid, sig) }

// withoutTTOU runs f, which may then change the terminal from the background. It blocks the signal
// on one thread instead of ignoring it, because os/signal can't undo Ignore, and commands would
// inherit it.
func withoutTTOU(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set, old unix.Sigset_t
	bits := unsafe.Sizeof(set.Val[0]) * 8
	set.Val[uintptr(unix.SIGTTOU-1)/bits] |= 1 << (uintptr(unix.SIGTTOU-1) % bits)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old) == nil {
		defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }()
	}
	f()
}
