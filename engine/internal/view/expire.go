package view

import (
	"slices"
	"time"

	"zombiezen.com/go/sqlite"
)

// expireStep is how many runs are looked at in one transaction.
const expireStep = 256

// expiry is the state of one Expire. It walks the runs of each workflow and state
// in order of creation, as none can have ended before it was created.
type expiry struct {
	states  []string
	before  time.Time
	reached map[pair]int64
}

// step looks at up to most runs, and reports whether there may be more.
func (e *expiry) step(w *writer, most int) (deleted int, more bool, err error) {
	all, err := pairs(w.conn)
	if err != nil {
		return 0, false, err
	}
	wanted := w.names.known(e.states)
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

// walk does a step in the runs of one workflow and state.
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
