//go:build unix

package notify

import (
	"os/exec"
	"syscall"
)

// errNoCommands is why this system can't run commands: it can.
var errNoCommands error

// inGroup makes the command the leader of a process group, which dies with it
// when the time is up.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
