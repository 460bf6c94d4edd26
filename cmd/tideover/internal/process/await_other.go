//go:build unix && !linux

package process

import "syscall"

// await waits for a change of the command's state.
func (s *Supervisor) await(a *attempt) (c change, err error) {
	_, err = syscall.Wait4(a.pid, &c.WaitStatus, syscall.WUNTRACED, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.continued = a.continues
	if err != syscall.EINTR { //nolint:errorlint // a bare number
		a.running = a.running && err == nil && c.Stopped()
	}
	return c, err
}
