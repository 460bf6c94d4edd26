package process

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forkExec starts the command, in the configured cgroup if the system allows it.
func forkExec(cfg *Config, path string, attr *syscall.ProcAttr) (int, error) {
	attr.Sys = &syscall.SysProcAttr{Setpgid: true}
	if cfg.DieWithUs {
		attr.Sys.Pdeathsig = syscall.SIGKILL
	}
	if cfg.Cgroup != "" {
		if fd, err := syscall.Open(cfg.Cgroup, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0); err == nil {
			defer syscall.Close(fd)
			in := *attr.Sys
			in.UseCgroupFD, in.CgroupFD = true, fd
			if pid, err := syscall.ForkExec(path, cfg.Args, &syscall.ProcAttr{Env: attr.Env, Files: attr.Files, Sys: &in}); err == nil {
				return pid, nil
			}
		}
	}
	return syscall.ForkExec(path, cfg.Args, attr)
}

// await waits for a change of the command's state. It first waits without collecting the change, and
// then collects it under the lock. So the order of the change and our CONT signals is known, and the
// command's pid is valid while the lock is held.
func (t *processTree) await(a *attempt) (change, error) {
	err := unix.Waitid(unix.P_PID, a.pid, nil, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
	if err != nil {
		return change{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := change{continued: a.continues}
	pid, err := syscall.Wait4(a.pid, &c.WaitStatus, syscall.WUNTRACED|syscall.WNOHANG, nil)
	if pid == 0 && err == nil {
		return c, syscall.EINTR // the command was continued between the two calls: wait again
	}
	a.running = a.running && err == nil && c.Stopped()
	return c, err
}

// withDefault runs f while the signal has its default effect. Package os/signal can't do that:
// Notify installs a handler for TSTP that Reset does not remove.
func (*signals) withDefault(sig syscall.Signal, f func()) {
	// The kernel's struct sigaction. Its layout depends on the processor, but all zeros mean the
	// default on each.
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

// stop sends the stop signal to the process, or if pid is 0 to our whole group.
func stop(pid int, sig syscall.Signal) { _ = syscall.Kill(pid, sig) }

// withoutTTOU runs f without the signal TTOU, so that f can change the terminal from the background.
// It blocks the signal on one thread. It does not ignore the signal, because os/signal can't undo
// Ignore, and commands would inherit the ignored signal.
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

// queued is the ioctl that returns how many bytes a pipe holds.
const queued = unix.TIOCINQ

// growPipe enlarges the pipe, for fewer and larger reads. The system may refuse.
func growPipe(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 1<<20) }

const (
	getTermios = unix.TCGETS
	setTermios = unix.TCSETS
)
