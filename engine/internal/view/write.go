package view

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// writer is the only connection that writes, with cached data of the file. Only the goroutine that
// received it from View.writing may use it.
type writer struct {
	conn   *sqlite.Conn
	names  *names
	added  []int64 // numbers of the names that were added in this transaction
	cursor uint64
	index  indexer
	sums   *sumFile

	// crowded has the homes (see place.go) of runs that are stored at another place. A run
	// with such a home may be elsewhere too, so it must be looked up in the table "aside".
	crowded map[int64]bool

	// sought is the argument of the last call of free, and found the place after its result:
	// the next call with the same argument begins there.
	sought, found int64

	tagged bool // a run has tags, or had some

	buf []byte
}

// load reads the cached data. It also reads a little of each table, to detect a damaged file early.
func (w *writer) load() error {
	cursor, err := queryInt(w.conn, fmt.Sprintf("SELECT value FROM meta WHERE key=%d", metaCursor))
	if err != nil {
		return err
	}
	w.cursor = uint64(cursor)
	for key, value := range w.index.indexState.fields() {
		if *value, err = queryInt(w.conn, fmt.Sprintf("SELECT value FROM meta WHERE key=%d", key)); err != nil {
			return err
		}
	}
	w.index.stored = w.index.indexState
	if w.index.segments, err = readSegments(w.conn); err != nil {
		return err
	}
	if err := each(w.conn, "SELECT id, text FROM names", func(s *sqlite.Stmt) error {
		w.names.add(s.ColumnInt64(0), string(columnBytes(s, 1)))
		return nil
	}); err != nil {
		return err
	}
	if err := each(w.conn, "SELECT id FROM aside", func(s *sqlite.Stmt) error {
		if u, ok := parseULID(string(columnBytes(s, 0))); ok {
			w.crowded[u.home()] = true
		}
		return nil
	}); err != nil {
		return err
	}
	tags, err := queryInt(w.conn, "SELECT 1 FROM tags LIMIT 1")
	if err != nil {
		return err
	}
	w.tagged = tags != 0
	for _, q := range [...]string{upsert, putPayload, putStale, putTag, putBlock} {
		if _, err := prepare(w.conn, q); err != nil {
			return err
		}
	}
	for _, q := range [...]string{"SELECT max(place) FROM runs", "SELECT min(place) FROM runs", "SELECT 1 FROM words LIMIT 1"} {
		if _, err := queryInt(w.conn, q); err != nil {
			return err
		}
	}
	return nil
}

// write calls f in a transaction, which is rolled back if f fails. op is the name of the operation,
// for errors.
func (v *View) write(ctx context.Context, op string, f func(*writer) error) error {
	ctx, cancel := v.live(ctx)
	defer cancel()
	if ctx.Err() != nil {
		return wrap(ctx, op, context.Cause(ctx))
	}
	var w *writer
	select {
	case w = <-v.writing:
	case <-ctx.Done():
		return wrap(ctx, op, context.Cause(ctx))
	}
	defer func() { v.writing <- w }()
	w.conn.SetInterrupt(ctx.Done())
	defer w.conn.SetInterrupt(nil)
	if err := w.transact(f); err != nil {
		return wrap(ctx, op, err)
	}
	v.cursor.Store(w.cursor)
	w.conn.SetInterrupt(nil) // a checkpoint that is interrupted is an error
	return wrap(ctx, op, w.checkpoint())
}

func (w *writer) transact(f func(*writer) error) error {
	cursor, segments := w.cursor, w.index.segments
	w.added = w.added[:0]
	err := exec(w.conn, "BEGIN IMMEDIATE")
	if err == nil {
		err = f(w)
	}
	if err == nil {
		err = w.storeState()
	}
	if err == nil {
		err = exec(w.conn, "COMMIT")
	}
	if err == nil {
		w.index.stored = w.index.indexState
		return nil
	}
	// The transaction must be ended even if the context has ended.
	w.conn.SetInterrupt(nil)
	if !w.conn.AutocommitEnabled() {
		if undo := exec(w.conn, "ROLLBACK"); undo != nil {
			err = fmt.Errorf("%w (and then: %w)", err, undo)
		}
	}
	w.cursor, w.index.segments, w.index.indexState = cursor, segments, w.index.stored
	w.names.remove(w.added)
	return err
}

// storeState writes the numbers of the indexState that have changed.
func (w *writer) storeState() error {
	stored := w.index.stored.fields()
	for key, value := range w.index.indexState.fields() {
		if *value == *stored[key] {
			continue
		}
		if err := exec(w.conn, "INSERT OR REPLACE INTO meta VALUES(?, ?)", key, *value); err != nil {
			return err
		}
	}
	return nil
}

// Write writes a batch in one transaction. It fails if the cursor of the batch is less than the
// current one.
func (v *View) Write(ctx context.Context, b Batch) error {
	return v.write(ctx, "write", func(w *writer) error {
		if b.Cursor < w.cursor {
			return fmt.Errorf("cursor %d is behind %d", b.Cursor, w.cursor)
		}
		for i := range b.Put {
			if err := w.put(&b.Put[i]); err != nil {
				return err
			}
		}
		for _, id := range b.Delete {
			if err := w.remove(id); err != nil {
				return err
			}
		}
		if b.Cursor == w.cursor {
			return nil
		}
		w.cursor = b.Cursor
		return exec(w.conn, "UPDATE meta SET value=?2 WHERE key=?1", metaCursor, int64(b.Cursor))
	})
}

// Expire deletes up to most runs that are in one of the states and ended before a time, and may
// shrink the file. It returns how many it deleted: fewer than most means that none is left. It
// uses several short transactions.
func (v *View) Expire(ctx context.Context, states []string, before time.Time, most int) (deleted int, err error) {
	e := expiry{states: states, before: before, reached: map[pair]int64{}}
	deleted, err = v.inSteps(ctx, "expire", most, expireStep, e.step)
	if err != nil || deleted == 0 {
		return deleted, err
	}
	return deleted, v.shrink(ctx)
}

// Expire and Index read this many runs in one transaction. It takes about 10 and 20 milliseconds,
// for which other writes may have to wait.
const (
	expireStep = 256
	indexStep  = 4096
)

// inSteps calls step in one transaction after the other, until it has handled most runs or there
// are no more. step handles up to the given number of runs, and returns how many it handled.
func (v *View) inSteps(
	ctx context.Context, op string, most, size int, step func(*writer, int) (n int, more bool, err error),
) (done int, err error) {
	for more := true; more && done < most; {
		n := 0
		err := v.write(ctx, op, func(w *writer) (err error) {
			n, more, err = step(w, min(most-done, size))
			return err
		})
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// shrink removes some free pages from the file, if they are more than an eighth of it. Fewer pages
// are soon used again.
func (v *View) shrink(ctx context.Context) error {
	return v.write(ctx, "shrink", func(w *writer) error {
		pages, err := queryInt(w.conn, "PRAGMA page_count")
		if err != nil {
			return err
		}
		free, err := queryInt(w.conn, "PRAGMA freelist_count")
		if err != nil || free < 256 || free < pages/8 {
			return err
		}
		return exec(w.conn, "PRAGMA incremental_vacuum(1024)")
	})
}

// Index indexes up to most runs that are not indexed yet, so that searches find them. It returns
// how many it indexed: fewer than most means that none is left. It uses several short transactions.
func (v *View) Index(ctx context.Context, most int) (done int, err error) {
	return v.inSteps(ctx, "index", most, indexStep, func(w *writer, most int) (n int, more bool, err error) {
		if list := w.index.mergeable(); list != nil {
			return 0, true, w.index.merge(list)
		}
		return w.index.extend(most)
	})
}

// expiry is the state of one call of Expire. It reads the runs of each workflow and state in
// order of creation. It leaves out runs that were created after the time in before, because
// they can't have ended before that time.
type expiry struct {
	states  []string
	before  time.Time
	reached map[pair]int64 // place of the last run that was read; maxPlace if there are no more
}

// step reads up to most runs and deletes those that have expired. more is false if all were read.
func (e *expiry) step(w *writer, most int) (deleted int, more bool, err error) {
	all, err := pairs(w.conn)
	if err != nil {
		return 0, false, err
	}
	wanted := w.names.oneOf(e.states)
	for _, p := range all {
		if _, begun := e.reached[p]; !begun {
			e.reached[p] = minPlace
		}
		if e.reached[p] == maxPlace || !slices.Contains(wanted, p.state) {
			continue
		}
		deleted, err = e.walk(w, p, most)
		return deleted, true, err
	}
	return 0, false, nil
}

// walk is step for the runs of one workflow and state. It returns the number of deleted runs.
func (e *expiry) walk(w *writer, p pair, most int) (int, error) {
	var ids []string
	seen, last := 0, e.reached[p]
	err := each(w.conn, `SELECT `+columns+` FROM runs WHERE workflow=? AND state=? AND place>? AND place<?
		ORDER BY place LIMIT ?`, func(s *sqlite.Stmt) error {
		r, place, _, err := w.names.scan(s)
		if err != nil {
			return err
		}
		if seen, last = seen+1, place; !r.Ended.IsZero() && r.Ended.Before(e.before) {
			ids = append(ids, r.ID)
		}
		return nil
	}, p.workflow, p.state, last, placeOf(e.before)+1<<slotBits, int64(most))
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		if err := w.remove(id); err != nil {
			return 0, err
		}
	}
	if e.reached[p] = last; seen < most {
		e.reached[p] = maxPlace
	}
	return len(ids), nil
}

// checkpoint copies the write-ahead log to the file if it has many frames.
func (w *writer) checkpoint() error {
	frames, done := 0, 0
	err := sqlitex.Execute(w.conn, "PRAGMA wal_checkpoint(NOOP)", &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		frames, done = s.ColumnInt(1), s.ColumnInt(2)
		return nil
	}})
	if err != nil || frames-done < checkpointFrames {
		return err
	}
	if err := w.sums.update(); err != nil {
		return err
	}
	return sqlitex.Execute(w.conn, "PRAGMA wal_checkpoint(PASSIVE)", nil)
}

// close closes the connection, which is the last one: SQLite copies the write-ahead log to the file.
func (w *writer) close() error {
	err := w.sums.update()
	if err != nil {
		err = errors.Join(err, os.Remove(w.sums.path+sumSuffix)) // they are made anew
	}
	return errors.Join(err, w.sums.file.Close(), w.conn.Close())
}
