package natstest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the system end the process when the test is gone, however
// that ended.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
