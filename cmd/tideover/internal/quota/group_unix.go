//go:build unix

package quota

import (
	"os/exec"
	"syscall"
)

// ownGroup starts the command in its own process group, so that all its processes can be killed.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
