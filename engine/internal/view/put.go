package view

import (
	"fmt"

	"zombiezen.com/go/sqlite"
)

// put writes a run to the place that follows from its id, if that place is free or has the run
// already. Otherwise it writes the run to the next free place, and records that place in the
// table aside.
func (w *writer) put(r *Run) error {
	if r.ID == "" {
		return fmt.Errorf("a run of %q has no id", r.Workflow)
	}
	u, ok := parseULID(r.ID)
	late := u.milli - r.Created.UnixMilli()
	ok = ok && max(late, -late) <= near
	if ok && !w.crowded[u.home()] {
		done, err := w.store(u.home(), u.rest[:], r)
		if err != nil || done {
			return err
		}
	}
	return w.putAside(r, ok)
}

// near is the largest difference between the time in an id and Created, in milliseconds, for a
// run at home. They may differ in a cluster, where another process creates the id.
const near = 10_000

// putAside writes a run to the place that it has already. A new run gets its home if hasHome is
// true and the home is free, or else the first free place of its millisecond or after it.
func (w *writer) putAside(r *Run, hasHome bool) error {
	u, is := parseULID(r.ID)
	place, found, err := locate(w.conn, r.ID)
	if err != nil {
		return err
	}
	if !found && hasHome {
		place = u.home()
	}
	stored, taken, err := storedID(w.conn, place)
	if err != nil {
		return err
	}
	switch {
	case found:
	case hasHome && !taken:
		stored = u.rest[:]
	default:
		if place, err = w.free(placeOf(r.Created)); err != nil {
			return err
		}
		if err := exec(w.conn, "INSERT INTO aside VALUES(?, ?)", []byte(r.ID), place); err != nil {
			return err
		}
		w.crowded[u.home()] = w.crowded[u.home()] || is
		stored = asideID(r.ID)
	}
	_, err = w.store(place, stored, r)
	return err
}

// free returns the first free place at or after the given one.
func (w *writer) free(from int64) (int64, error) {
	place := from
	if w.sought == from {
		place = max(place, w.found)
	}
	err := each(w.conn, "SELECT place FROM runs WHERE place>=? ORDER BY place", func(s *sqlite.Stmt) error {
		if s.ColumnInt64(0) != place {
			return errStop
		}
		place++
		return nil
	}, place)
	if err == nil {
		w.sought, w.found = from, place+1
	}
	return place, err
}

const upsert = `INSERT INTO runs VALUES(?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT(place) DO UPDATE SET workflow=excluded.workflow, state=excluded.state, attempts=excluded.attempts,
	next=excluded.next, error=excluded.error, body=excluded.body WHERE runs.id=excluded.id`

// store writes the row of a run. It returns false and writes nothing if the place has another run.
func (w *writer) store(place int64, stored []byte, r *Run) (bool, error) {
	workflow, err := w.name(r.Workflow)
	if err != nil {
		return false, err
	}
	state, err := w.name(r.State)
	if err != nil {
		return false, err
	}
	changed, err := w.changed(place, r)
	if err != nil {
		return false, err
	}
	s, err := prepare(w.conn, upsert)
	if err != nil {
		return false, err
	}
	w.buf = appendBody(w.buf[:0], place, r)
	s.BindInt64(1, place)
	s.BindBytes(2, stored)
	s.BindInt64(3, workflow)
	s.BindInt64(4, state)
	s.BindInt64(5, int64(r.Attempts)+firstName)
	if !r.Next.IsZero() {
		s.BindInt64(6, r.Next.UnixMicro())
	}
	if r.Error != "" {
		s.BindInt64(7, errorKey(Pattern(r.Error), r.Step))
	}
	s.BindBytes(8, w.buf)
	if _, err := s.Step(); err != nil {
		return false, err
	}
	if w.conn.Changes() == 0 {
		return false, nil
	}
	if changed {
		if err := exec(w.conn, putStale, place); err != nil {
			return false, err
		}
	}
	if err := w.putTags(place, r); err != nil {
		return false, err
	}
	return true, w.spill(place, r)
}

const putStale = "INSERT OR IGNORE INTO stale VALUES(?)"

// changed reports whether the words of this place are indexed and will be wrong after the write.
// Places after the last indexed one are not indexed yet.
func (w *writer) changed(place int64, r *Run) (bool, error) {
	if place > w.index.indexed {
		return false, nil
	}
	old, ok, err := w.names.at(w.conn, place)
	return !ok || !sameText(&old, r), err
}

const putPayload = "INSERT OR REPLACE INTO payloads VALUES(?, ?)"

// spill writes payloads that are too large for the row to the table payloads. If the payloads
// become small later, the old ones stay there until the run is deleted; the row says that they
// are not used.
func (w *writer) spill(place int64, r *Run) error {
	if !spills(r) {
		return nil
	}
	return exec(w.conn, putPayload, place, appendBlobs(nil, r.Input, r.Output, r.Detail))
}

// name returns the number of a workflow or state. It adds the name if it is new.
func (w *writer) name(text string) (int64, error) {
	if id, ok := w.names.id(text); ok {
		return id, nil
	}
	id := w.names.next // only the writer uses it
	if err := exec(w.conn, "INSERT INTO names VALUES(?, ?)", id, []byte(text)); err != nil {
		return 0, err
	}
	w.names.add(id, text)
	w.added = append(w.added, id)
	return id, nil
}

// remove deletes a run from all tables, if it exists.
func (w *writer) remove(id string) error {
	place, ok, err := locate(w.conn, id)
	if err != nil || !ok {
		return err
	}
	queries := []string{"DELETE FROM runs WHERE place=?", "DELETE FROM payloads WHERE place=?"}
	if place <= w.index.indexed {
		queries = append(queries, "DELETE FROM stale WHERE place=?")
		w.index.outdated++
	}
	if w.tagged {
		queries = append(queries, deleteTags)
	}
	for _, q := range queries {
		if err := exec(w.conn, q, place); err != nil {
			return err
		}
	}
	if u, ok := parseULID(id); ok && !w.crowded[u.home()] {
		return nil
	}
	return exec(w.conn, "DELETE FROM aside WHERE id=?", []byte(id))
}
