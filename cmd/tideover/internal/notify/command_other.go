//go:build !unix

package notify

import (
	"os/exec"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
)

// errNoCommands is why this system can't run commands: nothing would end what
// they have started.
var errNoCommands = process.ErrUnsupported

func inGroup(*exec.Cmd) {}
