package sqlitelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"golang.org/x/sys/unix"
)

const noMount = "no mount"

// childFullDisk fills a small file system, which only this process sees.
func childFullDisk(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		fmt.Println(noMount, err)
		return nil
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	l, err := openChild(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	if err := fillUp(l, func() error { return os.Remove(ballast) }); err != nil {
		return err
	}
	return errors.Join(fillBlob(l), l.Release())
}

// childLargeFile meets an I/O error that is not a full disk.
func childLargeFile(dir string) error {
	l, err := openChild(dir)
	if err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: 2 << 20, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	ctx, data := context.Background(), bytes.Repeat([]byte("x"), 100_000)
	var last uint64
	for err == nil && last < 100 {
		if last, err = l.Append(ctx, last, testID(last+1), data); err == nil {
			continue
		}
		_, last, _ = l.Bounds(ctx)
	}
	if err == nil || errors.Is(err, journal.ErrFull) || errors.Is(err, journal.ErrStale) || last < 5 {
		return fmt.Errorf("append after %d = %w; want a plain error", last, err)
	}
	limit.Cur = unix.RLIM_INFINITY
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	for range 20 {
		if last, err = l.Append(ctx, last, testID(last+1), data); err != nil {
			return fmt.Errorf("append after the error: %w", err)
		}
	}
	var n uint64
	for e, err := range l.Read(ctx, 1) {
		n++
		if err != nil || e.Seq != n || e.ID != testID(n) || !bytes.Equal(e.Data, data) {
			return fmt.Errorf("entry %d where %d is next, or its contents differ: %w", e.Seq, n, err)
		}
	}
	if n != last {
		return fmt.Errorf("reading ends at %d; want %d", n, last)
	}
	return l.Release()
}

func openChild(dir string) (*lease, error) {
	log, err := Open(context.Background(), Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	l, err := log.Lease(context.Background(), 0)
	if err != nil {
		return nil, err
	}
	return l.(*lease), nil
}

func TestAFullDisk(t *testing.T) {
	run := func(attr *syscall.SysProcAttr) (out []byte, err error) {
		cmd := childCommand(t, "full disk", t.TempDir())
		cmd.SysProcAttr = attr
		return cmd.Output()
	}
	// In a user namespace the test need not be root. Where that is forbidden, root
	// may still mount; where both are, the test of a database that may not grow
	// has to do.
	out, err := run(&syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	})
	if isForbidden(out, err) {
		out, err = run(&syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS})
	}
	if isForbidden(out, err) {
		t.Logf("no file system of its own: %s %v", out, err)
		return
	}
	if err != nil {
		t.Errorf("%s %v", out, err)
	}
}

func isForbidden(out []byte, err error) bool {
	var exit *exec.ExitError
	return bytes.Contains(out, []byte(noMount)) || err != nil && !errors.As(err, &exit)
}

func TestAnIOErrorCanBeRepeated(t *testing.T) {
	if out, err := childCommand(t, "large file", t.TempDir()).Output(); err != nil {
		t.Errorf("%s %v", out, err)
	}
}
