//go:build linux || darwin || freebsd

package sqlitelog

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestReleaseWhileAProcessIsStarted releases a lease while another goroutine starts a process. Until
// that process executes its program, it has a copy of every open file, and would keep the lock.
func TestReleaseWhileAProcessIsStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := openTest(t, dir, Full)
	copied, err := unix.Dup(int(l.lock.Fd())) // as fork does
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(copied) }()
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if err := leaseError(t, dir); err != nil {
		t.Errorf("the next lease: %v", err)
	}
}
