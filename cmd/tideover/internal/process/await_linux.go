package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// await waits for a change of the command's state. It first only sees the change, and then collects
// it under the lock, so that its order relative to our CONT signals is known, and the command's pid
// is valid while the lock is held.
func (s *Supervisor) await(a *attempt) (change, error) {
	err := unix.Waitid(unix.P_PID, a.pid, nil, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
	if err != nil {
		return change{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := change{continued: a.continues}
	pid, err := syscall.Wait4(a.pid, &c.WaitStatus, syscall.WUNTRACED|syscall.WNOHANG, nil)
	if pid == 0 && err == nil {
		return c, syscall.EINTR // continued in between
	}
	a.running = a.running && err == nil && c.Stopped()
	return c, err
}
