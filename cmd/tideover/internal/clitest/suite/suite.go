//go:build unix

// Package suite connects the tests of the command to the command.
package suite

import (
	"os"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// Main is [clitest.Main] with the command.
func Main(m *testing.M, helpers map[string]func(args []string)) {
	clitest.Main(m, Run, helpers)
}

// Run runs the command in this process.
func Run(args []string, in, out, stderr *os.File) (code int) {
	exit := cli.Run(args, cli.Streams{In: in, Out: out, Err: stderr})
	if exit.Signal != 0 {
		return 128 + int(exit.Signal)
	}
	return exit.Code
}
