//go:build unix

package exec_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// smallDisk returns a folder on a disk that is full after 64 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs a small disk: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	return dir
}

func TestHeldOutputIsNotLostOnAFullDisk(t *testing.T) {
	t.Parallel()
	cmd, _ := clitest.Command(t, "exec", "--hold-output", "-n", "2", "-p", clitest.Quick, "--", "sh", "-c", "echo begin; head -c 200000 /dev/zero; echo end >&2; exit 4")
	cmd.Env = append(cmd.Env, "TMPDIR="+smallDisk(t))
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 4)
	if want := 2 * (200000 + len("begin\n")); len(got.Out) != want || strings.Count(got.Out, "begin") != 2 || strings.Count(got.Stderr, "end\n") != 2 {
		t.Errorf("%d bytes, want %d; stderr %q", len(got.Out), want, got.Stderr)
	}
}

func TestBufferOnAFullDiskIsOurOwnErrorAtOnce(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	s := &clitest.Background{T: t, Folder: t.TempDir()}
	s.Cmd, s.Mark = clitest.Command(t, "exec", "--buffer", "-p", "fixed(1h) attempts=3", "--", "yes")
	s.Env = append(s.Env, "TMPDIR="+dir)
	s.Stderr = &s.Errors
	s.Begin()
	got := s.End()
	clitest.WantCode(t, got, 125)
	clitest.WantIn(t, "stderr", got.Stderr, "no space left on device")
}
