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

// The epoch in the table is that of the latest lease. As long as it is ours,
// no other owner has recorded anything, so the last sequence is known without
// asking; and one statement that commits by itself is all that an append costs.
const insert = "INSERT INTO log (seq, epoch, id, data) SELECT ?1, ?2, ?3, ?4 FROM meta WHERE epoch = ?2"

// Append implements [journal.Lease]. A context that ends while the entry is
// being recorded does not stop it.
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
		return l.repeated(conn, expected, last, id)
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
	l.lease.checkpoints.wrote(len(data))
	return seq, nil
}

// repeated answers an append that is not after the last entry: it is the repeat
// of one under this lease that was recorded, or its caller is out of date.
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

// leaseLog is the log of a folder in the hands of its owner.
type leaseLog struct {
	lease       *lease
	first, last atomic.Uint64 // written by the goroutine that has the turn of the writer
}

// readBounds reads the bounds from the database: at the start, and after an append that
// failed without saying whether it was recorded.
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
	// In this order: last never falls, so it is never below first-1.
	first = l.first.Load()
	return first, l.last.Load(), nil
}

// confirmBounds reads the bounds, after the appends before it have ended.
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

// readIfUnsure reads the bounds if an append may or may not have been recorded.
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
