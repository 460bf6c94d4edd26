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

	"github.com/tideover/tideover/engine/internal/disk"
)

// View is an open view. Several goroutines may call its methods. Writes wait for each other; reads
// do not wait for writes.
type View struct {
	path    string
	rebuilt string
	names   names
	cursor  atomic.Uint64
	readers *pool

	writing chan *writer // has the writer while no goroutine uses it
	stopped context.Context
	stop    context.CancelFunc
	closing sync.Once
	closed  error
}

// Open opens the view at path, or creates an empty one. The folder must exist. A file that is
// damaged or has another version is replaced by an empty view: see [View.Rebuilt]. A file that is
// not a view is renamed, with ".aside" added to its name.
func Open(ctx context.Context, path string) (*View, error) {
	v := &View{path: path, writing: make(chan *writer, 1)}
	w, err := v.open(ctx)
	if reason := unusable(err); reason != "" {
		if err := putAway(path); err != nil {
			return nil, fmt.Errorf("view: can't replace %s, which is unusable (%s): %w", path, reason, err)
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

// open tries once to open the file.
func (v *View) open(ctx context.Context) (*writer, error) {
	if err := touch(v.path); err != nil {
		return nil, err
	}
	if info, err := os.Stat(v.path); err == nil && info.Size() == 0 {
		if err := disk.Remove(v.path + sumSuffix); err != nil {
			return nil, err
		}
	}
	if err := Check(v.path); err != nil {
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
	if err == nil {
		w.sums, err = openSums(v.path)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return w, nil
}

// load checks that the file is a view, and reads the names and the cursor.
func (v *View) load(c *sqlite.Conn) (*writer, error) {
	found, empty, err := checkVersion(c)
	if err != nil {
		return nil, err
	}
	if err := execAll(c, pragmas); err != nil {
		return nil, err
	}
	switch {
	case found == 2:
		if err = sqlitex.ExecuteScript(c, fromVersion2, nil); sqlite.ErrCode(err).ToPrimary() == sqlite.ResultError {
			err = fmt.Errorf("%w: %w", ErrDamaged, err) // a table is missing
		}
	case empty:
		err = create(c)
	}
	if err != nil {
		return nil, err
	}
	if err := sqlitex.ExecuteTransient(c, manyIndex, nil); err != nil {
		return nil, err
	}
	if err := sqlitex.ExecuteScript(c, tagTable, nil); err != nil {
		return nil, err
	}
	v.names = names{ids: map[string]int64{}, text: map[int64]string{}, next: firstName} // a damaged file may have been read before this one
	w := &writer{conn: c, names: &v.names, index: indexer{conn: c, names: &v.names}, crowded: map[int64]bool{}}
	if err := w.load(); err != nil {
		return nil, err
	}
	v.cursor.Store(w.cursor)
	return w, nil
}

// Cursor returns the number of the log entry up to which the view is complete; 0 for a new view.
func (v *View) Cursor() uint64 { return v.cursor.Load() }

// Adopt makes the view one of the log with this identity. It returns false if the view belongs to
// another log: the caller should delete the file, and fill a new view.
func (v *View) Adopt(ctx context.Context, log uint64) (ours bool, err error) {
	err = v.write(ctx, "adopt", func(w *writer) error {
		known, err := queryInt(w.conn, fmt.Sprintf("SELECT value FROM meta WHERE key=%d", metaLog))
		if ours = known == 0 || uint64(known) == log; err != nil || known != 0 {
			return err
		}
		return exec(w.conn, "INSERT OR REPLACE INTO meta VALUES(?, ?)", metaLog, int64(log))
	})
	return ours, err
}

// Rebuilt returns why Open replaced the file by an empty view; "" if it did not.
func (v *View) Rebuilt() string { return v.rebuilt }

// Close interrupts reads and writes, waits for them, and closes the file.
func (v *View) Close() error {
	v.closing.Do(func() {
		v.stop()
		err := v.readers.close()
		w := <-v.writing
		// Close the writer last: the last connection copies the write-ahead log to the file.
		v.closed = wrap(v.stopped, "close", errors.Join(err, w.close()))
	})
	return v.closed
}

// live returns a context that also ends when the view is closed.
func (v *View) live(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(v.stopped, func() { cancel(ErrClosed) })
	return ctx, func() { detach(); cancel(nil) }
}

// busy is how long a connection waits for another process, such as a backup, to unlock the file.
const busy = 5 * time.Second

// versionError says that the file is not a view, or has another version.
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

// checkVersion returns the version of the file. It returns a versionError if the file is not a view
// or its version can't be used. A file without tables is a new view.
func checkVersion(c *sqlite.Conn) (found int64, empty bool, err error) {
	var header [3]int64
	for i, q := range [...]string{
		"PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema",
	} {
		if header[i], err = queryInt(c, q); err != nil {
			return 0, false, err
		}
	}
	if header == [3]int64{} || header[0] == appID && (header[1] == version || header[1] == 2) {
		return header[1], header[2] == 0, nil
	}
	return 0, false, &versionError{header[0], header[1]}
}

// unusable returns why a file must be replaced after an error; "" if the error has another cause.
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

// touch creates the file if it does not exist, readable only for its owner: SQLite would use the
// umask. SQLite gives the write-ahead log the same mode.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// putAway removes a file that can't be used. A file that does not look like a view is renamed
// instead: a wrong path must not delete a file of the user.
func putAway(path string) error {
	ours := looksOurs(path)
	for _, suffix := range [...]string{"", "-wal", "-shm", sumSuffix} {
		var err error
		if ours || suffix == "-shm" || suffix == sumSuffix {
			err = disk.Remove(path + suffix)
		} else {
			err = os.Rename(path+suffix, path+".aside"+suffix)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// looksOurs reports whether the header of the file has our application id.
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

// maxReaders limits the connections of readers, and so their memory: each has a megabyte of cache.
const maxReaders = 4

// pool has the connections of readers, opened when they are first needed.
type pool struct {
	path  string
	slots chan struct{}
	mu    sync.Mutex
	idle  []*sqlite.Conn
}

// get waits for a free connection and returns it. When ctx ends, get fails and queries on the
// connection are interrupted.
func (p *pool) get(ctx context.Context) (*sqlite.Conn, error) {
	// Check the context first, so that a closed pool returns no connection: if both cases of
	// the select are ready, it may choose any.
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

// close waits for all readers and closes their connections. The contexts of later readers have
// ended.
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
