package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// The table meta has the epoch of the latest lease. As long as that is our epoch, no other owner has
// appended anything. So the number of the last entry is known without a query, and an append is a
// single statement, which is its own transaction.
const insert = "INSERT INTO log (seq, epoch, id, data) SELECT ?1, ?2, ?3, ?4 FROM meta WHERE epoch = ?2"

// Append implements [journal.Lease]. When the context ends while the entry is being written, the
// write is not interrupted.
func (l *leaseLog) Append(ctx context.Context, expected uint64, id journal.ID, data []byte) (seq uint64, err error) {
	seq, err = l.append(ctx, expected, id, data)
	if err != nil {
		return 0, fmt.Errorf("append after %d: %w", expected, err)
	}
	return seq, nil
}

func (l *leaseLog) append(ctx context.Context, expected uint64, id journal.ID, data []byte) (uint64, error) {
	if len(data) > journal.MaxEntry {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", journal.ErrTooLarge, len(data), journal.MaxEntry)
	}
	if err := l.lease.lockChannel(ctx, l.lease.writer.turn); err != nil {
		return 0, err
	}
	defer func() { <-l.lease.writer.turn }()
	conn, err := l.lease.writer.open()
	if err != nil {
		return 0, describe(l.lease.path, err)
	}
	if err := l.readIfUnsure(conn); err != nil {
		return 0, err
	}
	if last := l.last.Load(); expected != last {
		seq, err := l.repeated(conn, expected, last, id)
		if err == nil {
			l.lease.witness.note(last)
		}
		return seq, err
	}
	return l.insert(conn, expected+1, id, data)
}

func (l *leaseLog) insert(conn *sqlite.Conn, seq uint64, id journal.ID, data []byte) (uint64, error) {
	stmt, err := conn.Prepare(insert)
	if err == nil {
		stmt.BindInt64(1, int64(seq))
		stmt.BindInt64(2, int64(l.lease.epoch))
		stmt.BindBytes(3, id[:])
		stmt.BindBytes(4, data)
		_, err = stmt.Step()
	}
	if err == nil {
		err = stmt.Reset()
	}
	if err != nil {
		l.lease.writer.unsure.Store(true)
		l.lease.writer.failed(err)
		return 0, describe(l.lease.path, err)
	}
	if conn.Changes() == 0 {
		return 0, l.lease.takenOver()
	}
	l.last.Store(seq)
	l.lease.witness.note(seq)
	l.lease.checkpoints.wrote(len(data))
	return seq, nil
}

// repeated handles an append that does not follow the last entry. If the same append was stored
// under this lease before, it returns its number. Otherwise the caller is out of date: ErrStale.
func (l *leaseLog) repeated(conn *sqlite.Conn, expected, last uint64, id journal.ID) (uint64, error) {
	stale := fmt.Errorf("%w: the last entry is %d", journal.ErrStale, last)
	if expected > last {
		return 0, stale
	}
	same := false
	err := sqlitex.Execute(conn, "SELECT id FROM log WHERE seq = ?1 AND epoch = ?2", &sqlitex.ExecOptions{
		Args: []any{int64(expected + 1), int64(l.lease.epoch)},
		ResultFunc: func(s *sqlite.Stmt) error {
			var found journal.ID
			same = s.ColumnBytes(0, found[:]) == len(found) && found == id
			return nil
		},
	})
	switch {
	case err != nil:
		return 0, describe(l.lease.path, err)
	case !same:
		return 0, stale
	}
	return expected + 1, nil
}

// leaseLog has the methods of a lease for entries.
type leaseLog struct {
	lease       *lease
	first, last atomic.Uint64 // numbers of the first and last entry; the goroutine that holds writer.turn sets them
}

// readBounds reads the numbers of the first and last entry from the database. It is called when the
// lease is opened, and after a failed append that may have been stored.
func (l *leaseLog) readBounds(conn *sqlite.Conn) error {
	const query = "SELECT first, (SELECT max(seq) FROM log), (SELECT min(seq) FROM log) FROM meta"
	var first, last, lowest int64
	there := false
	err := sqlitex.Execute(conn, query, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		there, first = true, s.ColumnInt64(0)
		last, lowest = first-1, first
		if !s.ColumnIsNull(1) {
			last, lowest = s.ColumnInt64(1), s.ColumnInt64(2)
		}
		return nil
	}})
	switch {
	case err != nil:
		return describe(l.lease.path, err)
	case !there:
		return damaged(l.lease.path, errors.New("the table meta is empty"))
	case lowest != first:
		return damaged(l.lease.path, fmt.Errorf("the first entry is %d, not %d", lowest, first))
	}
	l.first.Store(uint64(first))
	l.last.Store(uint64(last))
	return nil
}

// Bounds implements [journal.Lease].
func (l *leaseLog) Bounds(ctx context.Context) (first, last uint64, err error) {
	err = l.lease.usable(ctx)
	if err == nil && l.lease.writer.unsure.Load() {
		err = l.confirmBounds(ctx)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("bounds of %s: %w", l.lease.dir, err)
	}
	// Read first before last: last never decreases, so it is at least first-1.
	first = l.first.Load()
	return first, l.last.Load(), nil
}

// confirmBounds waits for its turn to write, and reads the bounds if a failed append may have
// been stored.
func (l *leaseLog) confirmBounds(ctx context.Context) error {
	if err := l.lease.lockChannel(ctx, l.lease.writer.turn); err != nil {
		return err
	}
	defer func() { <-l.lease.writer.turn }()
	conn, err := l.lease.writer.open()
	if err != nil {
		return describe(l.lease.path, err)
	}
	return l.readIfUnsure(conn)
}

// readIfUnsure reads the bounds if a failed append may have been stored.
func (l *leaseLog) readIfUnsure(conn *sqlite.Conn) error {
	if !l.lease.writer.unsure.Load() {
		return nil
	}
	if err := l.readBounds(conn); err != nil {
		l.lease.writer.failed(err)
		return err
	}
	l.lease.writer.unsure.Store(false)
	return nil
}

// A truncation is done in steps, so that appends can run between them. These are the limits of a
// step.
const (
	stepEntries = 256     // entries to remove
	stepBytes   = 1 << 20 // bytes of data to remove
	stepPages   = 16      // free pages to remove from the file

	// sparePages is the number of free pages that stay in the file for later appends, or an
	// eighth of the file if that is more. Removing all free pages would move other pages, and
	// the file would grow again at once.
	sparePages = 2048
)

var errTakenOver = errors.New("another epoch")

// Truncate implements [journal.Lease]. It removes all entries if below is after the last one. Removed
// entries may be there again after a power failure.
func (l *leaseLog) Truncate(ctx context.Context, below uint64) error {
	below = min(below, l.last.Load()+1)
	for more := true; more; {
		err := l.step(ctx, func(conn *sqlite.Conn) (err error) {
			if l.first.Load() < below {
				return l.cut(conn, below)
			}
			more, err = l.shrink(conn)
			return err
		})
		if err != nil {
			return fmt.Errorf("truncate below %d: %w", below, err)
		}
	}
	return nil
}

// step calls change while it holds the writer's turn.
func (l *leaseLog) step(ctx context.Context, change func(*sqlite.Conn) error) error {
	if err := l.lease.lockChannel(ctx, l.lease.writer.turn); err != nil {
		return err
	}
	defer func() { <-l.lease.writer.turn }()
	// Without a sync: the change is durable when the next append is, so appends do not have to wait
	// for another sync.
	err := l.lease.writer.change(OS, change)
	if errors.Is(err, errTakenOver) {
		return l.lease.takenOver()
	}
	return describe(l.lease.path, err)
}

// cut removes the first entries, up to the limits of a step and not beyond below.
func (l *leaseLog) cut(conn *sqlite.Conn, below uint64) (err error) {
	first := l.first.Load()
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			l.first.Store(first)
		}
	}()
	defer end(&err)
	next, size, err := cutPoint(conn, first, below)
	if err != nil {
		return err
	}
	if next == first {
		return damaged(l.lease.path, fmt.Errorf("entry %d is missing", first))
	}
	// Set first before readers can see that entries are missing: they then know that these were
	// truncated.
	l.first.Store(next)
	err = sqlitex.Execute(conn, "UPDATE meta SET first = ?1 WHERE epoch = ?2",
		&sqlitex.ExecOptions{Args: []any{int64(next), int64(l.lease.epoch)}})
	if err != nil {
		return err
	}
	if conn.Changes() == 0 {
		return errTakenOver
	}
	err = sqlitex.Execute(conn, "DELETE FROM log WHERE seq < ?1", &sqlitex.ExecOptions{Args: []any{int64(next)}})
	if err != nil {
		return err
	}
	l.lease.checkpoints.wrote(size / 16) // freed pages are only listed as free, and not written
	return nil
}

// cutPoint returns the number of the first entry that a step keeps, and the bytes that it removes.
func cutPoint(conn *sqlite.Conn, first, below uint64) (next uint64, size int, err error) {
	stmt, err := conn.Prepare("SELECT length(data) FROM log WHERE seq >= ?1 AND seq < ?2 ORDER BY seq LIMIT ?3")
	if err != nil {
		return 0, 0, err
	}
	defer stmt.Reset() //nolint:errcheck // it repeats the error of the step
	stmt.BindInt64(1, int64(first))
	stmt.BindInt64(2, int64(below))
	stmt.BindInt64(3, stepEntries)
	for next = first; size < stepBytes; next++ {
		row, err := stmt.Step()
		if err != nil {
			return 0, 0, err
		}
		if !row {
			break
		}
		size += stmt.ColumnInt(0)
	}
	return next, size, nil
}

// shrink removes a few free pages from the file. more is false if there are not enough free pages.
func (l *leaseLog) shrink(conn *sqlite.Conn) (more bool, err error) {
	free, err := number(conn, "PRAGMA freelist_count")
	if err != nil {
		return false, err
	}
	pages, err := number(conn, "PRAGMA page_count")
	if err != nil {
		return false, err
	}
	if free <= max(pages/8, sparePages) {
		return false, nil
	}
	l.lease.checkpoints.wrote(stepPages * pageSize / 8) // only pages in use are moved, and most are free
	return true, pragma(conn, fmt.Sprintf("incremental_vacuum(%d)", stepPages))
}
