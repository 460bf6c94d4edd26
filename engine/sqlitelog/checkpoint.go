package sqlitelog

import (
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"
)

// checkpointEvery is how much is written to the write-ahead log before it is
// copied to the database.
const checkpointEvery = 4 << 20

// checkpointer copies the write-ahead log to the database in the background, so
// that no append pays for it. Most is copied while appends go on; only what
// they have added since is copied in a turn of the writer's, and with no reader
// about: the log starts over only when nothing in it is left to copy or in use.
type checkpointer struct {
	written atomic.Int64 // roughly, since the last time
	wake    chan struct{}
	done    chan struct{}
	group   sync.WaitGroup
}

func (c *checkpointer) start(w *writer, r readers) { c.group.Go(func() { c.run(w, r) }) }

func (c *checkpointer) stop() {
	close(c.done)
	c.group.Wait()
}

// wrote counts what a change adds: its data, and the page or two around it.
func (c *checkpointer) wrote(n int) {
	if c.written.Add(int64(n)+2*pageSize) < checkpointEvery {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *checkpointer) run(w *writer, r readers) {
	var conn *sqlite.Conn
	for {
		select {
		case <-c.done:
			if conn != nil {
				conn.Close() //nolint:errcheck // the writer's says more
			}
			return
		case <-c.wake:
		}
		conn = c.checkpoint(conn, w, r)
	}
}

// checkpoint returns the connection to go on with. An error is not reported:
// nothing is lost by it, it is tried again, and what is behind it, like a full
// disk, meets the appends too.
func (c *checkpointer) checkpoint(conn *sqlite.Conn, w *writer, r readers) *sqlite.Conn {
	defer c.written.Store(0)
	if w.unsynced.Load() {
		return conn // the log must be rewritten before it is copied
	}
	var err error
	if conn == nil {
		if conn, err = connectWriter(w.path, w.durability); err != nil {
			return nil
		}
		// A backup reads for long. It is better to try again later than to let
		// appends wait for it.
		conn.SetBusyTimeout(time.Millisecond)
	}
	if err = pragma(conn, "wal_checkpoint(PASSIVE)"); err == nil {
		err = c.restart(conn, w, r)
	}
	if err != nil {
		w.noteFailedSync(err)
		conn.Close() //nolint:errcheck // see above
		return nil
	}
	return conn
}

// restart copies the rest and lets the log start over. Appends wait only when
// the readers have gone.
func (c *checkpointer) restart(conn *sqlite.Conn, w *writer, r readers) error {
	for range maxReaders {
		select {
		case reader := <-r:
			defer func() { r <- reader }()
		case <-c.done:
			return nil
		}
	}
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-c.done:
		return nil
	}
	if w.unsynced.Load() {
		return nil
	}
	return pragma(conn, "wal_checkpoint(RESTART)")
}
