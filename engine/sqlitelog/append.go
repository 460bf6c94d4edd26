package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/tideover/tideover/engine/journal"
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
