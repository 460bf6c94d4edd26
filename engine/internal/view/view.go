package view

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// View is an open view. Its methods may be called by several goroutines; writes
// wait for each other, reads do not wait.
type View struct {
	path    string
	rebuilt string
	names   names
	cursor  atomic.Uint64
	readers *pool

	writing chan *writer // has the writer while it is not in use
	stopped context.Context
	stop    context.CancelFunc
	closing sync.Once
	closed  error
}

// Open opens the view at path, whose folder must exist, or makes an empty one.
// A file that is damaged, or of another version, is replaced by an empty one;
// [View.Rebuilt] says so. One that was never a view is kept beside it, with
// ".aside" added to its name.
func Open(ctx context.Context, path string) (*View, error) {
	v := &View{path: path, writing: make(chan *writer, 1)}
	w, err := v.open(ctx)
	if reason := unusable(err); reason != "" {
		if err := putAway(path); err != nil {
			return nil, fmt.Errorf("view: put %s away, which is unusable (%s): %w", path, reason, err)
		}
		v.rebuilt = reason
		w, err = v.open(ctx)
	}
	if err != nil {
		return nil, wrap(ctx, "open "+path, err)
	}
	v.stopped, v.stop = context.WithCancel(context.WithoutCancel(ctx))
	v.readers = newPool(path)
	v.writing <- w
	return v, nil
}

// open makes one attempt at opening the file.
func (v *View) open(ctx context.Context) (*writer, error) {
	if err := touch(v.path); err != nil {
		return nil, err
	}
	c, err := sqlite.OpenConn(v.path, sqlite.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	c.SetBusyTimeout(busy)
	c.SetInterrupt(ctx.Done())
	w, err := v.load(c)
	c.SetInterrupt(nil)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return w, nil
}

// load checks that the file is a view, and reads the names and the cursor.
func (v *View) load(c *sqlite.Conn) (*writer, error) {
	if err := checkVersion(c); err != nil {
		return nil, err
	}
	if err := execAll(c, pragmas); err != nil {
		return nil, err
	}
	tables, err := queryInt(c, "SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return nil, err
	}
	if tables == 0 {
		if err := create(c); err != nil {
			return nil, err
		}
	}
	if err := sqlitex.ExecuteTransient(c, manyIndex, nil); err != nil {
		return nil, err
	}
	w, err := newWriter(c, &v.names)
	if err != nil {
		return nil, err
	}
	v.cursor.Store(w.cursor)
	return w, nil
}

// Cursor returns the sequence of the log up to which everything is in the view.
// That of a new one is 0.
func (v *View) Cursor() uint64 { return v.cursor.Load() }

// Rebuilt returns why the file that Open found was replaced by an empty one. It is
// empty if the file was opened as it was, or there was none.
func (v *View) Rebuilt() string { return v.rebuilt }

// Size returns the bytes on disk.
func (v *View) Size() int64 {
	var size int64
	for _, suffix := range [...]string{"", "-wal"} {
		if info, err := os.Stat(v.path + suffix); err == nil {
			size += info.Size()
		}
	}
	return size
}

// Close interrupts reads and writes, waits for them, and closes the file.
func (v *View) Close() error {
	v.closing.Do(func() {
		v.stop()
		err := v.readers.close()
		w := <-v.writing
		// Last, because the last connection moves the log into the file.
		v.closed = wrap(v.stopped, "close", errors.Join(err, w.conn.Close()))
	})
	return v.closed
}

// live returns a context that also ends when the view is closed.
func (v *View) live(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(v.stopped, func() { cancel(ErrClosed) })
	return ctx, func() { detach(); cancel(nil) }
}
