//go:build unix

package notify

import (
	"os/exec"
	"syscall"
)

// errNoCommands is nil, because commands can run on Unix. On other systems it is the
// reason why they can't.
var errNoCommands error

// inGroup makes the command the leader of a process group, and makes the end of its
// context kill the whole group.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
