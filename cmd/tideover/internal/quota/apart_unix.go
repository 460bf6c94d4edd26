//go:build unix

package quota

import (
	"os/exec"
	"syscall"
)

// apart gives the command a group of its own, so that all of it ends when it is told to.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
