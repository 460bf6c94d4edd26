package sqlitelog

import (
	"sync/atomic"

	"zombiezen.com/go/sqlite"
)

// writer is the connection that writes entries. A goroutine must hold the lock turn to use it.
// Goroutines get the lock in the order in which they wait, so waiting appends run between the steps
// of a truncation.
type writer struct {
	path       string
	durability Durability
	turn       chan struct{}
	conn       *sqlite.Conn // nil after an error; opened again when it is needed

	// unsure is set when a failed append may have been stored.
	unsure atomic.Bool

	// unsynced is set when a sync may have failed: data that was written since the last
	// successful sync does not count as durable until rewriteWAL has succeeded.
	unsynced atomic.Bool
}

// open returns the connection. It opens the connection if needed, and rewrites the write-ahead log
// after a failed sync.
func (w *writer) open() (*sqlite.Conn, error) {
	if w.conn == nil {
		conn, err := connectWriter(w.path, w.durability)
		if err != nil {
			return nil, err
		}
		w.conn = conn
	}
	if w.unsynced.Load() {
		frames, err := walFrames(w.conn)
		if err != nil {
			w.giveUp(err)
			return nil, err
		}
		if err := rewriteWAL(w.path, frames); err != nil {
			return nil, err
		}
		w.unsynced.Store(false)
	}
	return w.conn, nil
}

// failed is called after an error of the connection. It closes the connection, which may stay in an
// error state. After a full disk, a lock or a constraint the connection can be used again, because
// the transaction was rolled back.
func (w *writer) failed(err error) {
	switch resultCode(err).ToPrimary() {
	case sqlite.ResultFull, sqlite.ResultBusy, sqlite.ResultConstraint:
	default:
		w.giveUp(err)
	}
}

// giveUp closes the connection after an error.
func (w *writer) giveUp(err error) {
	w.noteFailedSync(err)
	w.close() //nolint:errcheck // err is the error to report
}

// noteFailedSync sets unsynced if the error of SQLite may be a failed sync. The checkpointer calls it
// too.
func (w *writer) noteFailedSync(err error) {
	if resultCode(err).ToPrimary() == sqlite.ResultIOErr {
		w.unsynced.Store(true)
	}
}

func (w *writer) close() error {
	if w.conn == nil {
		return nil
	}
	err := w.conn.Close()
	w.conn = nil
	return err
}

// change calls change with the durability d, which may differ from that of appends.
func (w *writer) change(d Durability, change func(*sqlite.Conn) error) error {
	conn, err := w.open()
	if err != nil {
		return err
	}
	if err := w.synchronous(d); err != nil {
		return err
	}
	if err := change(conn); err != nil {
		w.giveUp(err) // closing ends the transaction; the next connection has the normal durability
		return err
	}
	return w.synchronous(w.durability)
}

func (w *writer) synchronous(d Durability) error {
	err := pragma(w.conn, synchronous(d))
	if err != nil {
		w.giveUp(err)
	}
	return err
}
