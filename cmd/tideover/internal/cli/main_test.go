//go:build unix

package cli

import (
	"os"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestMain(m *testing.M) {
	clitest.Main(m, func(args []string, in, out, stderr *os.File) int {
		return Run(args, Streams{In: in, Out: out, Err: stderr}).Code
	}, nil)
}
