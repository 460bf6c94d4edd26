package sqlitelog

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
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
	stmt, err := conn.Prepare("SELECT id FROM log WHERE seq = ?1 AND epoch = ?2")
	if err != nil {
		return 0, describe(l.lease.path, err)
	}
	defer stmt.Reset() //nolint:errcheck // it repeats the error of the step
	stmt.BindInt64(1, int64(expected+1))
	stmt.BindInt64(2, int64(l.lease.epoch))
	row, err := stmt.Step()
	if err != nil {
		return 0, describe(l.lease.path, err)
	}
	var found journal.ID
	if !row || stmt.ColumnBytes(0, found[:]) != len(found) || !bytes.Equal(found[:], id[:]) {
		return 0, stale
	}
	return expected + 1, nil
}
