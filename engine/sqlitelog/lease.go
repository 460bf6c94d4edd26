package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"zombiezen.com/go/sqlite"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

// lease is the ownership of a folder. leaseLog has its methods for entries, and leaseBlobs those for
// blobs.
type lease struct {
	dir        string
	path       string // path of the database
	durability Durability
	epoch      uint64
	identity   uint64 // of the log
	losses     []journal.Loss
	lock       *os.File

	lost    chan struct{}
	lose    func()
	release func() error

	writer      writer
	anchor      *sqlite.Conn // keeps the write-ahead log open while the writer is closed
	readers     readers
	checkpoints *checkpointer
	witness     *witness

	// changing is a lock: it is held while blobs change, and by a backup while it copies them.
	changing chan struct{}

	// copying is a lock that a backup holds.
	copying chan struct{}

	leaseLog
	leaseBlobs
}

var (
	_ journal.Lease        = (*lease)(nil)
	_ journal.Backuper     = (*lease)(nil)
	_ journal.Witnessed    = (*lease)(nil)
	_ journal.LossReporter = (*lease)(nil)
)

// openLease locks a folder and opens the log in it. If the disk is full, it removes the reserve file
// and tries again. If it refuses the log, it changes nothing.
func openLease(dir string, c Config) (*lease, error) {
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
	found, err := inspect(dir, c)
	if err != nil {
		return nil, errors.Join(err, unlock(lock), lock.Close())
	}
	noteHolder(lock)
	l, err := openLocked(dir, c.Durability, lock, &found)
	if errors.Is(err, journal.ErrFull) && freeReserve(dir) {
		l, err = openLocked(dir, c.Durability, lock, &found)
	}
	if err != nil {
		unlockDir(lock) //nolint:errcheck // the first error is the one to report
		return nil, err
	}
	return l, nil
}

func openLocked(dir string, d Durability, lock *os.File, found *state) (_ *lease, err error) {
	path := filepath.Join(dir, "log.db")
	if found.loss != nil {
		if err := found.setAside(dir); err != nil {
			return nil, describe(path, err)
		}
	}
	if err := prepareFiles(dir, path); err != nil {
		return nil, describe(path, err)
	}
	if err := rewriteWAL(path, 0); err != nil {
		return nil, describe(path, err)
	}
	conn, err := connectWriter(path, d)
	if err != nil {
		return nil, describe(path, err)
	}
	if err := prepare(conn, path, found.tables); err != nil {
		return nil, closeAfter(conn, err)
	}
	l := &lease{
		dir: dir, path: path, durability: d, lock: lock,
		lost:        make(chan struct{}),
		writer:      writer{path: path, durability: d, turn: make(chan struct{}, 1), conn: conn},
		readers:     newReaders(),
		checkpoints: &checkpointer{wake: make(chan struct{}, 1), done: make(chan struct{})},
		changing:    make(chan struct{}, 1),
		copying:     make(chan struct{}, 1),
	}
	l.leaseLog.lease, l.leaseBlobs.lease = l, l
	l.lose = sync.OnceFunc(func() { close(l.lost) })
	l.release = sync.OnceValue(l.giveUp)
	if err := l.takeOwnership(conn, found); err != nil {
		if sqlite.ErrCode(err) == sqlite.ResultError { // a column is missing
			err = damaged(path, err)
		}
		return nil, closeAfter(conn, describe(path, err))
	}
	if err := mark(dir); err != nil {
		return nil, closeAfter(conn, describe(path, err))
	}
	if l.anchor, err = connectAnchor(path); err != nil {
		return nil, closeAfter(conn, describe(path, err))
	}
	l.witness, err = openWitness(dir, acknowledged{
		log: l.identity, epoch: l.epoch, last: l.last.Load(), lazy: d == OS, boot: bootHash(),
	})
	if err != nil {
		return nil, closeAfter(conn, closeAfter(l.anchor, describe(path, err)))
	}
	l.checkpoints.start(&l.writer, l.readers)
	keepReserve(dir)
	return l, nil
}

// Epoch implements [journal.Lease].
func (l *lease) Epoch() uint64 { return l.epoch }

// Identity implements [journal.Witnessed].
func (l *lease) Identity() uint64 { return l.identity }

// Losses implements [journal.LossReporter].
func (l *lease) Losses() []journal.Loss { return slices.Clone(l.losses) }

// Lost implements [journal.Lease].
func (l *lease) Lost() <-chan struct{} { return l.lost }

// unclosed has the ended leases of this process whose connections are still open and whose lock is
// still held, by the path of the database: see closeWriter.
var unclosed sync.Map // of string to *lease

// closeWriter closes the last connections and releases the lock. When the last connection closes,
// SQLite copies the write-ahead log to the database. That must not happen after a failed sync. So if
// the log can't be rewritten now, the connections and the lock stay open: the next lease of this
// process tries again, or another process does after this one has ended.
func (l *lease) closeWriter() error {
	if _, err := l.writer.open(); err != nil && l.writer.unsynced.Load() {
		unclosed.Store(l.path, l)
		return err
	}
	return errors.Join(l.anchor.Close(), l.writer.close(), unlockDir(l.lock))
}

// usable returns an error if the lease or the context has ended.
func (l *lease) usable(ctx context.Context) error {
	select {
	case <-l.lost:
		return fmt.Errorf("%w: the lease with epoch %d has ended", journal.ErrStale, l.epoch)
	default:
		return ctx.Err()
	}
}

// lockChannel acquires a lock that is a channel with a capacity of one. Goroutines get the lock in
// the order in which they wait for it. It fails if the lease or the context has ended.
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

// takenOver ends the lease, because the epoch in the database shows that another owner has taken
// over. It returns the error.
func (l *lease) takenOver() error {
	l.lose()
	return fmt.Errorf("%w: another process has taken over %[3]s, and epoch %[2]d is over; was its lock file deleted?", journal.ErrStale, l.epoch, l.dir)
}

// confirm returns an error if another owner has taken over.
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
	l.copying <- struct{}{} // wait for a backup to end
	l.checkpoints.stop()
	l.readers.close()
	l.changing <- struct{}{} // wait for changes of blobs to end
	l.writer.turn <- struct{}{}
	l.witness.close()
	err := l.closeWriter()
	<-l.writer.turn
	<-l.changing
	<-l.copying
	return disk.Wrapf(describe(l.path, err), "release %s", l.dir)
}

// lockDir locks a folder. The operating system releases the lock when the process ends in any way.
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
	return f, nil
}

// noteHolder writes the process id to the lock file. It is only for the error of another process, so
// errors are ignored.
func noteHolder(f *os.File) {
	f.Truncate(0)                                        //nolint:errcheck // see above
	f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) //nolint:errcheck // see above
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

// unlockDir releases the lock. The file stays: if it were removed, a process that has opened the old
// file and one that creates a new file could both get a lock.
func unlockDir(f *os.File) error {
	f.Truncate(0) //nolint:errcheck // the content is only for error messages
	return errors.Join(unlock(f), f.Close())
}
