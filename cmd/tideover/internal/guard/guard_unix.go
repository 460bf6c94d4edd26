//go:build unix

package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
)

// closeOnExec makes the command not inherit the file.
func closeOnExec(f *os.File) { unix.CloseOnExec(int(f.Fd())) }

// lockFile is a lock that is held while a command runs. The file records how the processes of that
// command can be identified. The guard removes it at the end, so a file that is not locked belongs to
// a guard that was killed.
type lockFile struct{ file *os.File }

// lock waits for the lock at the path.
func lock(ctx context.Context, path string) (*lockFile, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(ctx, f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// The last holder may have removed the file, and another process may have locked a new file.
		locked, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(locked, there) {
			return &lockFile{f}, nil
		}
		_ = f.Close()
	}
}

// unlock removes the file and releases the lock.
func (l *lockFile) unlock() {
	_ = os.Remove(l.file.Name())
	_ = l.file.Close()
}

// leftovers returns the record that a killed guard has left in the file; nil if there is none.
func (l *lockFile) leftovers() []process.Leftovers { return readLeftovers(l.file) }

// record records how the processes of the next command can be identified.
func (l *lockFile) record(p process.Leftovers) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(text, 0)
	return err
}

// readLeftovers reads the record in a lock file. An empty file means that nothing was started.
func readLeftovers(r io.Reader) []process.Leftovers {
	text, err := io.ReadAll(io.LimitReader(r, 64<<10))
	var p process.Leftovers
	if err != nil || json.Unmarshal(text, &p) != nil {
		return nil
	}
	return []process.Leftovers{p}
}

// endLeftovers kills the processes of a command whose guard was killed.
func endLeftovers(lock string) {
	f, err := os.Open(lock)
	if err != nil {
		return
	}
	defer f.Close()
	_ = process.EndLeftovers(context.Background(), readLeftovers(f), 0) // on an error, the next guard tries again and reports it
}

func flock(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s is locked: %w", f.Name(), context.Cause(ctx))
		}
	}
}

// Sweep ends the processes of commands whose guards were killed, and removes the locks of those
// guards. grace is the time between TERM and KILL. A process that does not end is logged; the next
// attempt of its step fails while it runs.
func Sweep(ctx context.Context, dir string, grace time.Duration, log *slog.Logger) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var stale []*lockFile
	var left []process.Leftovers
	for _, file := range files {
		f, err := os.OpenFile(filepath.Join(dir, file.Name()), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			_ = f.Close()
			continue
		}
		l := &lockFile{f}
		stale, left = append(stale, l), append(left, l.leftovers()...)
	}
	if err := process.EndLeftovers(ctx, left, grace); err != nil {
		log.Warn("processes of earlier attempts are still running", "error", err)
		for _, l := range stale {
			_ = l.file.Close() // the next guard tries again
		}
		return nil
	}
	for _, l := range stale {
		l.unlock()
	}
	process.RemoveEmptyCgroups()
	return nil
}

// ownSession makes the guard the leader of a session. If the guard is killed, its processes can be
// found by the session. terminal means that standard input becomes the terminal of the session.
func ownSession(cmd *exec.Cmd, terminal bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: terminal}
}
