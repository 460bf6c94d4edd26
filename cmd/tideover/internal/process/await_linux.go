package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// await waits for a change of the command's state. It is first seen and then
// taken under the lock, so that it is known to come before or after a CONT of
// ours, and so that the number of the command is valid while the lock is held.
func (s *Supervisor) await(a *attempt) (change, error) {
	err := unix.Waitid(unix.P_PID, a.pid, nil, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
	if err != nil {
		return change{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := change{continued: a.goOns}
	pid, err := syscall.Wait4(a.pid, &c.WaitStatus, syscall.WUNTRACED|syscall.WNOHANG, nil)
	if pid == 0 && err == nil {
		return c, syscall.EINTR // continued in between
	}
	a.running = a.running && err == nil && c.Stopped()
	return c, err
}
