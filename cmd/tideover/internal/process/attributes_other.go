//go:build unix && !linux

package process

import "syscall"

// attributes says how the command is started.
func (s *Supervisor) attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
