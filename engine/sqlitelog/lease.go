package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"zombiezen.com/go/sqlite"

	"github.com/tideover/tideover/engine/journal"
)

// lease is the ownership of a folder. leaseLog has the methods for entries, leaseBlobs
// those for blobs.
type lease struct {
	dir        string
	path       string // of the database
	durability Durability
	epoch      uint64
	lock       *os.File

	lost    chan struct{}
	lose    func()
	release func() error

	writer      writer
	anchor      *sqlite.Conn // keeps the write-ahead log open while the writer is closed
	readers     readers
	checkpoints *checkpointer

	// changing is held while blobs change, and by a backup while it gathers them.
	changing chan struct{}

	// copying is held by a backup.
	copying chan struct{}

	leaseLog
	leaseBlobs
}

var (
	_ journal.Lease    = (*lease)(nil)
	_ journal.Backuper = (*lease)(nil)
)

// openLease takes the lock of a folder and opens the log in it. If there is no room for
// that, it uses the room in reserve.
func openLease(dir string, d Durability) (*lease, error) {
	path := filepath.Join(dir, "log.db")
	if earlier, ok := unclosed.LoadAndDelete(path); ok {
		if err := earlier.(*lease).closeWriter(); err != nil {
			return nil, describe(path, err)
		}
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	l, err := openLocked(dir, d, lock)
	if errors.Is(err, journal.ErrFull) && freeReserve(dir) {
		l, err = openLocked(dir, d, lock)
	}
	if err != nil {
		unlockDir(lock) //nolint:errcheck // the first error says more
		return nil, err
	}
	return l, nil
}

func openLocked(dir string, d Durability, lock *os.File) (*lease, error) {
	path := filepath.Join(dir, "log.db")
	traces, err := prepareFiles(dir, path)
	if err != nil {
		return nil, describe(path, err)
	}
	if err := rewriteWAL(path, 0); err != nil {
		return nil, describe(path, err)
	}
	conn, err := connectWriter(path, d)
	if err != nil {
		return nil, describe(path, err)
	}
	if err := prepare(conn, path, traces); err != nil {
		return nil, closeAfter(conn, err)
	}
	if err := mark(dir); err != nil {
		return nil, closeAfter(conn, describe(path, err))
	}
	epoch, err := nextEpoch(conn, d)
	if err != nil {
		return nil, closeAfter(conn, describe(path, err))
	}
	anchor, err := connectAnchor(path)
	if err != nil {
		return nil, closeAfter(conn, describe(path, err))
	}
	l := &lease{
		dir: dir, path: path, durability: d, epoch: epoch, lock: lock,
		lost:        make(chan struct{}),
		writer:      writer{path: path, durability: d, turn: make(chan struct{}, 1), conn: conn},
		anchor:      anchor,
		readers:     newReaders(),
		checkpoints: &checkpointer{wake: make(chan struct{}, 1), done: make(chan struct{})},
		changing:    make(chan struct{}, 1),
		copying:     make(chan struct{}, 1),
	}
	l.leaseLog.lease, l.leaseBlobs.lease = l, l
	l.lose = sync.OnceFunc(func() { close(l.lost) })
	l.release = sync.OnceValue(l.giveUp)
	if err := l.readBounds(conn); err != nil {
		return nil, closeAfter(conn, closeAfter(anchor, err))
	}
	l.checkpoints.start(&l.writer, l.readers)
	keepReserve(dir)
	return l, nil
}

// nextEpoch makes a number that no owner had before: it is on disk before
// anything is recorded with it, with any durability.
func nextEpoch(conn *sqlite.Conn, d Durability) (uint64, error) {
	if err := pragma(conn, synchronous(Full)); err != nil {
		return 0, err
	}
	epoch, err := number(conn, "UPDATE meta SET epoch = epoch + 1 RETURNING epoch")
	if err != nil {
		return 0, err
	}
	return uint64(epoch), pragma(conn, synchronous(d))
}

// Epoch implements [journal.Lease].
func (l *lease) Epoch() uint64 { return l.epoch }

// Lost implements [journal.Lease].
func (l *lease) Lost() <-chan struct{} { return l.lost }

// unclosed are leases of this process that have ended with connections open and the lock
// held, by the path of the database.
var unclosed sync.Map // of string to *lease

// closeWriter closes the last connections and gives up the lock. SQLite then copies the
// write-ahead log to the database, which must not happen with a log that could not be
// synced: everything stays open until the next lease of this process, or another
// process, has rewritten the log.
func (l *lease) closeWriter() error {
	if _, err := l.writer.open(); err != nil && l.writer.unsynced.Load() {
		unclosed.Store(l.path, l)
		return err
	}
	return errors.Join(l.anchor.Close(), l.writer.close(), unlockDir(l.lock))
}

// usable returns why the lease may be used no longer.
func (l *lease) usable(ctx context.Context) error {
	select {
	case <-l.lost:
		return fmt.Errorf("%w: the lease with epoch %d has ended", journal.ErrStale, l.epoch)
	default:
		return ctx.Err()
	}
}

// lockChannel takes a lock that is a channel with room for one element. Goroutines get
// it in the order in which they ask.
func (l *lease) lockChannel(ctx context.Context, lock chan struct{}) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	select {
	case lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := l.usable(ctx); err != nil {
		<-lock
		return err
	}
	return nil
}

// takenOver ends the lease because the database has another epoch.
func (l *lease) takenOver() error {
	l.lose()
	return fmt.Errorf("%w: epoch %d of %s is over; was its lock file deleted?", journal.ErrStale, l.epoch, l.dir)
}

// confirm checks that no other owner has taken over.
func (l *lease) confirm(ctx context.Context) error {
	var epoch int64
	err := l.reading(ctx, func(conn *sqlite.Conn) (err error) {
		epoch, err = number(conn, "SELECT epoch FROM meta")
		return err
	})
	if err != nil {
		return describe(l.path, err)
	}
	if uint64(epoch) != l.epoch {
		return l.takenOver()
	}
	return nil
}

// Release implements [journal.Lease].
func (l *lease) Release() error { return l.release() }

func (l *lease) giveUp() error {
	l.lose()
	l.copying <- struct{}{} // a backup has noticed
	l.checkpoints.stop()
	l.readers.close()
	l.changing <- struct{}{} // no blob is being changed
	l.writer.turn <- struct{}{}
	err := l.closeWriter()
	<-l.writer.turn
	<-l.changing
	<-l.copying
	if err != nil {
		return fmt.Errorf("release %s: %w", l.dir, describe(l.path, err))
	}
	return nil
}

// lockDir takes the lock of a folder. The system gives it up with the process,
// however that ends.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	held, err := tryLock(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if held {
		holder := lockHolder(f)
		f.Close()
		return nil, fmt.Errorf("%w: %s holds %s; stop it, or use another folder (deleting the lock file does not help)",
			journal.ErrLocked, holder, path)
	}
	// Only for people, so an error is none of the lock.
	f.Truncate(0)                                        //nolint:errcheck // see above
	f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) //nolint:errcheck // see above
	return f, nil
}

func lockHolder(f *os.File) string {
	text := make([]byte, 32)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	switch {
	case err != nil:
		return "another process"
	case pid == os.Getpid():
		return fmt.Sprintf("this process (pid %d)", pid)
	default:
		return fmt.Sprintf("the process with pid %d", pid)
	}
}

// unlockDir gives the lock up. The file stays: removing it would let a third
// process lock a new file while a second one waits with the old one open.
func unlockDir(f *os.File) error {
	f.Truncate(0) //nolint:errcheck // what it says is only for people
	return f.Close()
}
