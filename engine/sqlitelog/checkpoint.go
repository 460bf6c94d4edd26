package sqlitelog

import (
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"
)

// checkpointEvery is how many bytes are written to the write-ahead log before it is copied to the
// database.
const checkpointEvery = 4 << 20

// checkpointer copies the write-ahead log to the database in the background, so that appends do not
// have to. It copies most of the log while appends continue. Then it waits until no reader uses the
// log, holds the writer's turn, and copies the rest: only then can the log start from the beginning
// again.
type checkpointer struct {
	written atomic.Int64 // approximate bytes written since the last checkpoint
	wake    chan struct{}
	done    chan struct{}
	group   sync.WaitGroup
}

func (c *checkpointer) start(w *writer, r readers) { c.group.Go(func() { c.run(w, r) }) }

func (c *checkpointer) stop() {
	close(c.done)
	c.group.Wait()
}

// wrote counts the bytes that a change adds to the write-ahead log: its n bytes of data, and about
// two pages. It wakes the checkpointer when there are enough.
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
				conn.Close() //nolint:errcheck // an error matters only for the writer's connection
			}
			return
		case <-c.wake:
		}
		conn = c.checkpoint(conn, w, r)
	}
}

// checkpoint makes a checkpoint and returns the connection for the next one; nil after an error. An
// error is not reported: no data is lost, the checkpoint is tried again later, and a cause such as a
// full disk makes appends fail too.
func (c *checkpointer) checkpoint(conn *sqlite.Conn, w *writer, r readers) *sqlite.Conn {
	defer c.written.Store(0)
	if w.unsynced.Load() {
		return conn // a sync has failed: rewriteWAL must come first
	}
	var err error
	if conn == nil {
		if conn, err = connectWriter(w.path, w.durability); err != nil {
			return nil
		}
		// A backup may read for a long time. Fail and try again later: appends must not wait
		// for it.
		conn.SetBusyTimeout(time.Millisecond)
	}
	if err = pragma(conn, "wal_checkpoint(PASSIVE)"); err == nil {
		err = c.restart(conn, w, r)
	}
	if err != nil {
		w.noteFailedSync(err)
		conn.Close() //nolint:errcheck // the first error is the one that counts
		return nil
	}
	return conn
}

// restart copies the rest of the log and lets it start from the beginning again. It waits for the
// readers first, and only then makes appends wait.
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
