//go:build unix

package exec_test

import (
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// start starts tideover. $DIR is a folder in which the command that it runs can write files for the
// test.
func start(t *testing.T, args ...string) *clitest.Background {
	t.Helper()
	s := &clitest.Background{T: t, Folder: t.TempDir()}
	s.Cmd, s.Mark = clitest.Command(t, args...)
	s.Env = append(s.Env, "DIR="+s.Folder)
	s.Stderr = &s.Errors
	s.Begin()
	return s
}
