//go:build !unix

package notify

import "github.com/tideover/tideover/cmd/tideover/internal/process"

// errNoCommands is the error for notifiers of the kind run. This system can't run their
// commands, because it has no process groups to end all processes of a command.
var errNoCommands = process.ErrUnsupported
