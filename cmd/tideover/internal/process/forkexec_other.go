//go:build unix && !linux

package process

import "syscall"

// forkExec starts the command.
func (s *Supervisor) forkExec(path string, attr *syscall.ProcAttr) (int, error) {
	attr.Sys = &syscall.SysProcAttr{Setpgid: true}
	return syscall.ForkExec(path, s.cfg.Args, attr)
}
