package view

import "fmt"

// put writes a run to the place of its id, if that is free or the run is there already.
func (w *writer) put(r *Run) error {
	if r.ID == "" {
		return fmt.Errorf("a run of %q has no id", r.Workflow)
	}
	u, ok := parseULID(r.ID)
	ok = ok && abs(u.milli-r.Created.UnixMilli()) <= near
	if ok && !w.crowded[u.home()] {
		done, err := w.store(u.home(), u.rest[:], r)
		if err != nil || done {
			return err
		}
	}
	return w.putAside(r, ok)
}

// near is how far the time of an id may be from Created, in milliseconds: in a
// cluster, the process that requests a run draws its id.
const near = 10_000

func abs(n int64) int64 { return max(n, -n) }

// putAside finds out where a run is; a new one gets its home, if it has one that
// is free, or the first free place.
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

// free returns the first place from the given one on that has no run.
func (w *writer) free(from int64) (int64, error) {
	place := from
	if w.sought == from {
		place = max(place, w.found)
	}
	s, err := prepare(w.conn, "SELECT place FROM runs WHERE place>=? ORDER BY place")
	if err != nil {
		return 0, err
	}
	defer s.Reset() //nolint:errcheck // it repeats the error of Step
	s.BindInt64(1, place)
	for {
		row, err := s.Step()
		if err != nil {
			return 0, err
		}
		if !row || s.ColumnInt64(0) != place {
			w.sought, w.found = from, place+1
			return place, nil
		}
		place++
	}
}

const upsert = `INSERT INTO runs VALUES(?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT(place) DO UPDATE SET workflow=excluded.workflow, state=excluded.state, attempts=excluded.attempts,
	next=excluded.next, error=excluded.error, body=excluded.body WHERE runs.id=excluded.id`

// store writes the row of a run. It reports false, and has done nothing, if the
// place has another run.
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
	return true, w.spill(place, r)
}

const putStale = "INSERT OR IGNORE INTO stale VALUES(?)"

// changed reports whether words of this place were indexed that are no longer
// right. Behind the last indexed place there is nothing to be wrong.
func (w *writer) changed(place int64, r *Run) (bool, error) {
	if place > w.indexed {
		return false, nil
	}
	old, ok, err := w.names.at(w.conn, place)
	return !ok || !sameText(&old, r), err
}

const putPayload = "INSERT OR REPLACE INTO payloads VALUES(?, ?)"

// spill writes payloads that are too large for the row. Those of a run that has
// become small stay until it is deleted; its row says that they are not its.
func (w *writer) spill(place int64, r *Run) error {
	if !spills(r) {
		return nil
	}
	return exec(w.conn, putPayload, place, appendBlobs(nil, r.Input, r.Output, r.Detail))
}

// name returns the number of a workflow or state.
func (w *writer) name(text string) (int64, error) {
	if id, ok := w.names.id(text); ok {
		return id, nil
	}
	id := w.names.free()
	if err := exec(w.conn, "INSERT INTO names VALUES(?, ?)", id, []byte(text)); err != nil {
		return 0, err
	}
	w.names.add(id, text)
	w.added = append(w.added, id)
	return id, nil
}

// remove deletes a run, if there is one, and all that belongs to it.
func (w *writer) remove(id string) error {
	place, ok, err := locate(w.conn, id)
	if err != nil || !ok {
		return err
	}
	queries := []string{"DELETE FROM runs WHERE place=?", "DELETE FROM payloads WHERE place=?"}
	if place <= w.indexed {
		queries = append(queries, "DELETE FROM stale WHERE place=?", "DELETE FROM words WHERE rowid=?")
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
