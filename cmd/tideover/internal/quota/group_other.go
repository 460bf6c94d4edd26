//go:build !unix

package quota

import "os/exec"

// ownGroup does nothing: there are no process groups on this system.
func ownGroup(*exec.Cmd) {}
