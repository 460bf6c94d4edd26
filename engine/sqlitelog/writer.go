package sqlitelog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/internal/sqlitefile"
	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
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

// After a failed sync, the operating system may treat data as written that is not on disk, and no
// later sync writes it. So the content of the write-ahead log must be written again before a later
// append or a checkpoint relies on it. The same is done when a folder is opened, because the process
// before may have had such a failure.

// rewriteWAL writes the content of the write-ahead log again and syncs it. committed is the number of
// frames that SQLite uses; it fails if fewer frames are intact. No other goroutine may write to the
// database meanwhile.
func rewriteWAL(path string, committed int) (err error) {
	f, err := disk.Open(path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, rewrite := range []bool{false, true} {
		n, err := checkFrames(f, rewrite)
		if err != nil {
			return err
		}
		if n < committed {
			return fmt.Errorf("%w: %s-wal: a sync failed, and of %d pages that were written %d are left; nothing that was acknowledged is lost; start the process again",
				journal.ErrDamaged, path, committed, n)
		}
	}
	return f.Sync()
}

// checkFrames reads the file in pieces and returns how many frames at its beginning are intact.
// With rewrite, it writes each piece back. It checks the frames in that pass too, because the
// operating system may at any time drop data that it could not write to disk.
func checkFrames(f disk.File, rewrite bool) (n int, err error) {
	head := make([]byte, sqlitefile.WALHeader)
	switch _, err := f.ReadAt(head, 0); {
	case errors.Is(err, io.EOF):
		return 0, nil // the file has no frames
	case err != nil:
		return 0, err
	}
	sum, page, valid := sqlitefile.CheckWALHeader(head)
	if !valid {
		page = 4096
	}
	if rewrite {
		if _, err := f.WriteAt(head, 0); err != nil {
			return 0, err
		}
	}
	piece := make([]byte, max(rewriteSize/(sqlitefile.FrameHeader+page), 1)*(sqlitefile.FrameHeader+page))
	for at := int64(sqlitefile.WALHeader); ; at += int64(len(piece)) {
		size, err := f.ReadAt(piece, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		if valid {
			var whole int
			whole, valid = sum.Frames(piece[:size], page)
			n += whole
		}
		if rewrite {
			if _, err := f.WriteAt(piece[:size], at); err != nil {
				return n, err
			}
		}
		if size < len(piece) {
			return n, nil
		}
	}
}

// walFrames returns how many frames of the write-ahead log SQLite uses.
func walFrames(conn *sqlite.Conn) (n int, err error) {
	err = sqlitex.ExecuteTransient(conn, "PRAGMA wal_checkpoint(NOOP)", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error { n = s.ColumnInt(1); return nil },
	})
	return n, err
}

// rewriteSize is how many bytes are rewritten at once.
const rewriteSize = 256 << 10
