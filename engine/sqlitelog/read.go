package sqlitelog

import (
	"context"
	"fmt"
	"iter"

	"zombiezen.com/go/sqlite"

	"github.com/tideover/tideover/engine/journal"
)

// Read reads the log in chunks, each in a separate transaction: with one long transaction the
// write-ahead log could not start from the beginning again and would grow.
const (
	chunkEntries = 512     // most entries of a chunk
	chunkBytes   = 1 << 20 // a chunk with this many bytes gets no further entry
)

// Read implements [journal.Lease].
func (l *leaseLog) Read(ctx context.Context, from uint64) iter.Seq2[journal.Entry, error] {
	last := l.last.Load()
	return func(yield func(journal.Entry, error) bool) {
		var c chunk
		for next := from; ; {
			err := l.fetch(ctx, &c, next, last)
			if err != nil {
				yield(journal.Entry{}, fmt.Errorf("read from %d: %w", next, err))
				return
			}
			if len(c.entries) == 0 {
				return
			}
			next += uint64(len(c.entries))
			for _, e := range c.entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// fetch fills the chunk with entries from the number from on, without a gap, at most up to last. The
// chunk is empty after the last entry.
func (l *leaseLog) fetch(ctx context.Context, c *chunk, from, last uint64) error {
	c.entries, c.data = c.entries[:0], c.data[:0]
	if err := l.lease.usable(ctx); err != nil {
		return err
	}
	if first := l.first.Load(); from < first {
		return fmt.Errorf("the entry was truncated: the first entry is %d", first)
	}
	if from > last {
		return nil
	}
	err := l.lease.reading(ctx, func(conn *sqlite.Conn) error { return c.fill(conn, from, last) })
	if err != nil {
		return describe(l.lease.path, err)
	}
	if len(c.entries) > 0 && c.entries[0].Seq == from {
		return nil
	}
	// The entry existed before: it has been truncated since, or the database is damaged.
	if first := l.first.Load(); from < first {
		return fmt.Errorf("the entry was truncated: the first entry is %d", first)
	}
	return damaged(l.lease.path, fmt.Errorf("entry %d is missing", from))
}

// chunk has consecutive entries and their data.
type chunk struct {
	entries []journal.Entry
	data    []byte
}

// fill reads entries until the chunk is full, or up to the first gap.
func (c *chunk) fill(conn *sqlite.Conn, from, last uint64) error {
	stmt, err := conn.Prepare("SELECT seq, epoch, id, data FROM log WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq LIMIT ?3")
	if err != nil {
		return err
	}
	defer stmt.Reset() //nolint:errcheck // it repeats the error of the step
	stmt.BindInt64(1, int64(from))
	stmt.BindInt64(2, int64(last))
	stmt.BindInt64(3, chunkEntries)
	for len(c.data) < chunkBytes {
		row, err := stmt.Step()
		if err != nil {
			return err
		}
		e := journal.Entry{Seq: uint64(stmt.ColumnInt64(0)), Epoch: uint64(stmt.ColumnInt64(1))}
		if !row || e.Seq != from+uint64(len(c.entries)) || stmt.ColumnBytes(2, e.ID[:]) != len(e.ID) {
			return nil
		}
		// When append allocates a new array, earlier entries still point to the old one. That
		// is correct, because the old array does not change any more.
		start, n := len(c.data), stmt.ColumnLen(3)
		c.data = append(c.data, make([]byte, n)...)
		e.Data = c.data[start : start+n : start+n]
		stmt.ColumnBytes(3, e.Data)
		c.entries = append(c.entries, e)
	}
	return nil
}

const maxReaders = 4

// readers is a pool of connections that only read. They see committed data and never wait for the
// writer.
type readers chan *sqlite.Conn // an element is nil if its connection is not open yet

func newReaders() readers {
	r := make(readers, maxReaders)
	for range maxReaders {
		r <- nil
	}
	return r
}

// reading calls read with a connection of the pool. After an error the connection is closed.
func (l *lease) reading(ctx context.Context, read func(*sqlite.Conn) error) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	var conn *sqlite.Conn
	select {
	case conn = <-l.readers:
	case <-l.lost:
		return l.usable(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	if conn == nil {
		conn, err = connectReader(l.path)
	}
	if err == nil {
		err = read(conn)
	}
	if err != nil && conn != nil {
		conn.Close() //nolint:errcheck // the first error is the one to report
		conn = nil
	}
	l.readers <- conn
	return err
}

// close waits until all connections are free, and closes them. The pool is empty afterwards.
func (r readers) close() {
	for range maxReaders {
		if conn := <-r; conn != nil {
			conn.Close() //nolint:errcheck // nothing was written with it
		}
	}
}
