package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"zombiezen.com/go/sqlite"
)

// leaseLog is the log of a folder in the hands of its owner.
type leaseLog struct {
	lease       *lease
	first, last atomic.Uint64 // written by the goroutine that has the turn of the writer
}

// readBounds reads the bounds from the database: at the start, and after an append that
// failed without saying whether it was recorded.
func (l *leaseLog) readBounds(conn *sqlite.Conn) error {
	const query = "SELECT first, (SELECT max(seq) FROM log), (SELECT min(seq) FROM log) FROM meta"
	stmt, err := conn.Prepare(query)
	if err != nil {
		return describe(l.lease.path, err)
	}
	defer stmt.Reset() //nolint:errcheck // it repeats the error of the step
	if row, err := stmt.Step(); err != nil {
		return describe(l.lease.path, err)
	} else if !row {
		return damaged(l.lease.path, errors.New("the table meta is empty"))
	}
	first, last := stmt.ColumnInt64(0), stmt.ColumnInt64(0)-1
	if !stmt.ColumnIsNull(1) {
		last = stmt.ColumnInt64(1)
		if lowest := stmt.ColumnInt64(2); lowest != first {
			return damaged(l.lease.path, fmt.Errorf("the first entry is %d, not %d", lowest, first))
		}
	}
	l.first.Store(uint64(first))
	l.last.Store(uint64(last))
	return nil
}

// Bounds implements [journal.Lease].
func (l *leaseLog) Bounds(ctx context.Context) (first, last uint64, err error) {
	if err := l.lease.usable(ctx); err != nil {
		return 0, 0, fmt.Errorf("bounds of %s: %w", l.lease.dir, err)
	}
	if l.lease.writer.unsure.Load() {
		if err := l.confirmBounds(ctx); err != nil {
			return 0, 0, fmt.Errorf("bounds of %s: %w", l.lease.dir, err)
		}
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
