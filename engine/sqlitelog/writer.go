package sqlitelog

import (
	"sync/atomic"

	"zombiezen.com/go/sqlite"
)

// writer is the connection that records. The goroutine that uses it holds its turn, which
// is given in the order of asking: waiting appends come between the steps of a truncation.
type writer struct {
	path       string
	durability Durability
	turn       chan struct{}
	conn       *sqlite.Conn // nil after an error; opened when it is needed again

	// unsure is set when an append may or may not have been recorded.
	unsure atomic.Bool

	// unsynced is set when a sync may have failed: what was written since the last
	// good one is not taken for durable until rewriteWAL has succeeded.
	unsynced atomic.Bool
}

// open returns the connection. Everything that was committed through it is on disk,
// except what need not be.
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

// failed is called after an error. A connection that met an I/O error may stay
// in that state, so it is given up; one that met a full disk rolled back.
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
	w.close() //nolint:errcheck // it repeats the error
}

// noteFailedSync is called with each error of SQLite. The connections of checkpoints
// call it too.
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

// relaxed runs a change that need not be durable by itself: it is as soon as
// the next append is. That spares appends waiting for its sync.
func (w *writer) relaxed(change func(*sqlite.Conn) error) error { return w.change(OS, change) }

// sync makes everything durable that has been recorded.
func (w *writer) sync() error {
	return w.change(Full, func(conn *sqlite.Conn) error {
		_, err := number(conn, "UPDATE meta SET epoch = epoch")
		return err
	})
}

// change runs a change with another durability than that of appends.
func (w *writer) change(d Durability, change func(*sqlite.Conn) error) error {
	conn, err := w.open()
	if err != nil {
		return err
	}
	if err := w.synchronous(d); err != nil {
		return err
	}
	if err := change(conn); err != nil {
		w.giveUp(err) // which ends the transaction and restores the durability
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
