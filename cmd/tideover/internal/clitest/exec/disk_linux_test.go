//go:build unix

package exec_test

import (
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestBufferOnAFullDiskIsOurOwnErrorAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs a small disk: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	s := &clitest.Background{T: t, Folder: t.TempDir()}
	s.Cmd, s.Mark = clitest.Command(t, "exec", "--buffer", "-p", "fixed(1h) attempts=3", "--", "yes")
	s.Env = append(s.Env, "TMPDIR="+dir)
	s.Stderr = &s.Errors
	s.Begin()
	got := s.End()
	clitest.WantCode(t, got, 125)
	clitest.WantIn(t, "stderr", got.Stderr, "no space left on device")
}
