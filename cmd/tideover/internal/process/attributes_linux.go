package process

import "syscall"

// attributes says how the command is started.
func (s *Supervisor) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if s.cfg.DieWithUs {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}
