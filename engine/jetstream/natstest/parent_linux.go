package natstest

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the system kill the process when the test process ends,
// in any way.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
