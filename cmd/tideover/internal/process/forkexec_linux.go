package process

import "syscall"

// forkExec starts the command, in the configured cgroup if the system allows it.
func (s *Supervisor) forkExec(path string, attr *syscall.ProcAttr) (int, error) {
	attr.Sys = &syscall.SysProcAttr{Setpgid: true}
	if s.cfg.DieWithUs {
		attr.Sys.Pdeathsig = syscall.SIGKILL
	}
	if s.cfg.Cgroup != "" {
		if fd, err := syscall.Open(s.cfg.Cgroup, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0); err == nil {
			defer syscall.Close(fd)
			in := *attr.Sys
			in.UseCgroupFD, in.CgroupFD = true, fd
			if pid, err := syscall.ForkExec(path, s.cfg.Args, &syscall.ProcAttr{Env: attr.Env, Files: attr.Files, Sys: &in}); err == nil {
				return pid, nil
			}
		}
	}
	return syscall.ForkExec(path, s.cfg.Args, attr)
}
