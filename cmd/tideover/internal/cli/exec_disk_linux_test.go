package cli

import (
	"syscall"
	"testing"
)

func TestBufferOnAFullDiskIsOurOwnErrorAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs a small disk: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	s := &backgroundProcess{t: t, dir: t.TempDir()}
	s.Cmd, s.mark = command(t, "exec", "--buffer", "-p", "fixed(1h) attempts=3", "--", "yes")
	s.Env = append(s.Env, "TMPDIR="+dir)
	s.Stderr = &s.stderr
	s.begin()
	got := s.wait()
	wantCode(t, got, 125)
	wantIn(t, "stderr", got.stderr, "no space left on device")
}
