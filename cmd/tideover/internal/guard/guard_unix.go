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

// keep keeps the descriptor from the command.
func keep(f *os.File) { unix.CloseOnExec(int(f.Fd())) }

// lockFile is a lock that is held while a command runs. The file says by what the processes of
// that command are known. It is removed at the end: one that is there and not locked is that of
// a guard that was killed.
type lockFile struct{ file *os.File }

// lock waits for the lock of that name.
func lock(ctx context.Context, path string) (*lockFile, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(ctx, f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// The last holder may have removed the file, so that others lock another one.
		locked, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(locked, there) {
			return &lockFile{f}, nil
		}
		_ = f.Close()
	}
}

// unlock removes the file and lets the next one have the lock.
func (l *lockFile) unlock() {
	_ = os.Remove(l.file.Name())
	_ = l.file.Close()
}

// leftovers returns what a guard that was killed has noted in the file.
func (l *lockFile) leftovers() []process.Leftovers { return readLeftovers(l.file) }

// note notes by what the processes of the command are known that is started next.
func (l *lockFile) note(p process.Leftovers) error {
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

// readLeftovers returns what is noted in the file of a lock. Nothing was started if there is
// nothing in it.
func readLeftovers(r io.Reader) []process.Leftovers {
	text, err := io.ReadAll(io.LimitReader(r, 64<<10))
	var p process.Leftovers
	if err != nil || json.Unmarshal(text, &p) != nil {
		return nil
	}
	return []process.Leftovers{p}
}

// endLeftovers kills what a command has left whose guard was killed.
func endLeftovers(lock string) {
	f, err := os.Open(lock)
	if err != nil {
		return
	}
	defer f.Close()
	_ = process.EndLeftovers(context.Background(), readLeftovers(f), 0) // if not, the next guard tries again, and reports it
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

// Sweep ends what commands have left whose guards were killed, and removes the locks of those
// guards. The grace is how long the processes may take to end after TERM. One that does not end
// is logged; the next attempt of its step fails as long as it runs.
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
		log.Warn("processes of earlier attempts are left", "error", err)
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

// apart makes the guard the leader of a session, by which everything that it has
// started is known should it be killed; if it has a terminal, that is the session's.
func apart(cmd *exec.Cmd, terminal bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: terminal}
}
