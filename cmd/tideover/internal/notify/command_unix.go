//go:build unix

package notify

import (
	"os/exec"
	"syscall"
)

// errNoCommands is nil: commands can run on Unix. On other systems it says why they can't.
var errNoCommands error

// inGroup makes the command the leader of a process group, which dies with it
// when the time is up.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
