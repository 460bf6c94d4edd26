package sqlitelog

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

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
