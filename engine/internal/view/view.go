package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

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
	v.readers = &pool{path: path, slots: make(chan struct{}, maxReaders)}
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

// busy is how long a connection waits for another process, such as a backup, to
// let go of the file.
const busy = 5 * time.Second

// versionError says that the file has another format than ours.
type versionError struct{ app, version int64 }

func (e *versionError) Error() string {
	switch {
	case e.app != appID:
		return "not a view"
	case e.version > version:
		return fmt.Sprintf("of the newer version %d", e.version)
	default:
		return fmt.Sprintf("of the older version %d", e.version)
	}
}

// checkVersion reads whose file it is and what format it has. A file without
// content is a new view.
func checkVersion(c *sqlite.Conn) error {
	var found [3]int64
	for i, q := range [...]string{
		"PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema",
	} {
		var err error
		if found[i], err = queryInt(c, q); err != nil {
			return err
		}
	}
	if found == [3]int64{} || found[0] == appID && found[1] == version {
		return nil
	}
	return &versionError{found[0], found[1]}
}

// unusable says why a file has to be replaced, or "" if it need not be.
func unusable(err error) string {
	v, other := errors.AsType[*versionError](err)
	code := sqlite.ErrCode(err)
	switch {
	case err == nil:
		return ""
	case other:
		return v.Error()
	case errors.Is(err, ErrDamaged):
		return "damaged: " + err.Error()
	case code.ToPrimary() == sqlite.ResultNotADB:
		return "not a view"
	case isDamage(code):
		return "damaged: " + code.Message()
	}
	return ""
}

// touch makes the file, so that only its owner can read it: SQLite would ask the
// umask. Its log gets the same mode from SQLite.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// putAway removes a file that can't be used. One that does not look like ours is
// kept under another name: a mistyped path must not cost anybody a file.
func putAway(path string) error {
	ours := looksOurs(path)
	for _, suffix := range [...]string{"", "-wal", "-shm"} {
		var err error
		if ours || suffix == "-shm" {
			err = os.Remove(path + suffix)
		} else {
			err = os.Rename(path+suffix, path+".aside"+suffix)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// looksOurs looks for our number at its place in the header of the file.
func looksOurs(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var header [72]byte
	if _, err := io.ReadFull(f, header[:]); err != nil {
		return false
	}
	return string(header[68:]) == "tidv"
}

// maxReaders bounds the memory of reading: a megabyte of cache each.
const maxReaders = 4

// pool has the connections of readers, opened when they are first needed.
type pool struct {
	path  string
	slots chan struct{}
	mu    sync.Mutex
	idle  []*sqlite.Conn
}

// get waits for a connection. It is interrupted when ctx ends.
func (p *pool) get(ctx context.Context) (*sqlite.Conn, error) {
	// First, so that a pool that was closed gives out nothing: select may choose
	// either of two that are ready.
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c, err := p.open()
	if err != nil {
		<-p.slots
		return nil, err
	}
	c.SetInterrupt(ctx.Done())
	return c, nil
}

func (p *pool) open() (*sqlite.Conn, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		defer p.mu.Unlock()
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return c, nil
	}
	p.mu.Unlock()
	c, err := sqlite.OpenConn(p.path, sqlite.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	c.SetBusyTimeout(busy)
	if err := execAll(c, readPragmas); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (p *pool) put(c *sqlite.Conn) {
	c.SetInterrupt(nil)
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
	<-p.slots
}

// close waits for all readers. The contexts of those to come have ended.
func (p *pool) close() error {
	for range maxReaders {
		p.slots <- struct{}{}
	}
	var errs []error
	for _, c := range p.idle {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
