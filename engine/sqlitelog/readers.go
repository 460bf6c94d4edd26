package sqlitelog

import (
	"context"

	"zombiezen.com/go/sqlite"
)

const maxReaders = 4

// readers lends connections that only read. They see what is committed and
// never wait for the writer.
type readers struct {
	path  string
	slots chan *sqlite.Conn // nil for a connection that is not open yet
}

func newReaders(path string) readers {
	r := readers{path: path, slots: make(chan *sqlite.Conn, maxReaders)}
	for range maxReaders {
		r.slots <- nil
	}
	return r
}

// reading runs read on a connection of its own. After an error the connection
// is not used again.
func (l *lease) reading(ctx context.Context, read func(*sqlite.Conn) error) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	var conn *sqlite.Conn
	select {
	case conn = <-l.readers.slots:
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
		conn.Close() //nolint:errcheck // the first error says more
		conn = nil
	}
	l.readers.slots <- conn
	return err
}

// close waits for readers. No connection is lent afterwards.
func (r readers) close() {
	for range maxReaders {
		if conn := <-r.slots; conn != nil {
			conn.Close() //nolint:errcheck // nothing was written with it
		}
	}
}
