package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
)

// lease is the ownership of a folder.
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
	anchor      *sqlite.Conn  // keeps the write-ahead log open while the writer is closed
	first, last atomic.Uint64 // written by the goroutine that has the turn of the writer
	readers     readers
	checkpoints *checkpointer

	// gate is held while blobs change, and by a backup while it gathers them.
	gate chan struct{}

	// copying is held by a backup.
	copying chan struct{}
}

var (
	_ journal.Lease    = (*lease)(nil)
	_ journal.Backuper = (*lease)(nil)
)

// openLease takes the lock of a folder and opens the log in it. If there is no room for
// that, it uses the room in reserve.
func openLease(dir string, d Durability) (*lease, error) {
	path := filepath.Join(dir, "log.db")
	if err := closeUnclosed(path); err != nil {
		return nil, describe(path, err)
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
		readers:     newReaders(path),
		checkpoints: newCheckpointer(path),
		gate:        make(chan struct{}, 1),
		copying:     make(chan struct{}, 1),
	}
	l.lose = sync.OnceFunc(func() { close(l.lost) })
	l.release = sync.OnceValue(l.giveUp)
	if err := l.settle(conn); err != nil {
		return nil, closeAfter(conn, closeAfter(anchor, err))
	}
	l.checkpoints.start(&l.writer, l.readers)
	keepReserve(dir)
	return l, nil
}

// nextEpoch makes a number that no owner had before: it is on disk before
// anything is recorded with it, whatever durability was chosen.
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

// settle reads the bounds back: at the start, and after an append that failed
// without saying whether it was recorded.
func (l *lease) settle(conn *sqlite.Conn) error {
	const query = "SELECT first, (SELECT max(seq) FROM log), (SELECT min(seq) FROM log) FROM meta"
	stmt, err := conn.Prepare(query)
	if err != nil {
		return describe(l.path, err)
	}
	defer stmt.Reset() //nolint:errcheck // it repeats the error of the step
	if row, err := stmt.Step(); err != nil {
		return describe(l.path, err)
	} else if !row {
		return damaged(l.path, errors.New("the table meta is empty"))
	}
	first, last := stmt.ColumnInt64(0), stmt.ColumnInt64(0)-1
	if !stmt.ColumnIsNull(1) {
		last = stmt.ColumnInt64(1)
		if lowest := stmt.ColumnInt64(2); lowest != first {
			return damaged(l.path, fmt.Errorf("the first entry is %d, not %d", lowest, first))
		}
	}
	l.first.Store(uint64(first))
	l.last.Store(uint64(last))
	return nil
}

// Epoch implements [journal.Lease].
func (l *lease) Epoch() uint64 { return l.epoch }

// Lost implements [journal.Lease].
func (l *lease) Lost() <-chan struct{} { return l.lost }

// Bounds implements [journal.Lease].
func (l *lease) Bounds(ctx context.Context) (first, last uint64, err error) {
	if err := l.usable(ctx); err != nil {
		return 0, 0, fmt.Errorf("bounds of %s: %w", l.dir, err)
	}
	if l.writer.unsure.Load() {
		if err := l.settleInTurn(ctx); err != nil {
			return 0, 0, fmt.Errorf("bounds of %s: %w", l.dir, err)
		}
	}
	// In this order: last never falls, so it is never below first-1.
	first = l.first.Load()
	return first, l.last.Load(), nil
}

func (l *lease) settleInTurn(ctx context.Context) error {
	if err := l.pass(ctx, l.writer.turn); err != nil {
		return err
	}
	defer func() { <-l.writer.turn }()
	conn, err := l.writer.open()
	if err != nil {
		return describe(l.path, err)
	}
	return l.settleIfUnsure(conn)
}

func (l *lease) settleIfUnsure(conn *sqlite.Conn) error {
	if !l.writer.unsure.Load() {
		return nil
	}
	if err := l.settle(conn); err != nil {
		l.writer.failed(err)
		return err
	}
	l.writer.unsure.Store(false)
	return nil
}

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

// closeUnclosed closes the connections of an earlier lease.
func closeUnclosed(path string) error {
	earlier, ok := unclosed.LoadAndDelete(path)
	if !ok {
		return nil
	}
	return earlier.(*lease).closeWriter()
}

// usable says why nothing may be done under the lease any more.
func (l *lease) usable(ctx context.Context) error {
	select {
	case <-l.lost:
		return fmt.Errorf("%w: the lease with epoch %d has ended", journal.ErrStale, l.epoch)
	default:
		return ctx.Err()
	}
}

// pass waits at a channel that lets one through at a time. Those who wait are
// let through in the order of their arrival.
func (l *lease) pass(ctx context.Context, gate chan struct{}) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	select {
	case gate <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := l.usable(ctx); err != nil {
		<-gate
		return err
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
	l.gate <- struct{}{} // no blob is being changed
	l.writer.turn <- struct{}{}
	err := l.closeWriter()
	<-l.writer.turn
	<-l.gate
	<-l.copying
	if err != nil {
		return fmt.Errorf("release %s: %w", l.dir, describe(l.path, err))
	}
	return nil
}
