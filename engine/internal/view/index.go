package view

import (
	"fmt"

	"zombiezen.com/go/sqlite"
)

// indexStep is how many runs are indexed in one transaction: about ten
// milliseconds, for which a writer may have to wait.
const indexStep = 256

// maxBehind is how far SearchBehind counts.
const maxBehind = 10_000

// index goes on behind the last indexed place, and then does those before it
// that have changed. Both are in order of place, which FTS5 needs to gather
// words instead of writing each run's to disk.
func (w *writer) index(most int) (int, error) {
	places, err := w.places("SELECT place FROM runs WHERE place>? ORDER BY place LIMIT ?", w.indexed, int64(most))
	if err != nil {
		return 0, err
	}
	for _, p := range places {
		if err := w.addWords(p); err != nil {
			return 0, err
		}
	}
	if n := len(places); n > 0 {
		w.indexed = places[n-1]
		if err := run(w.conn, "UPDATE meta SET value=?2 WHERE key=?1", metaIndexed, w.indexed); err != nil {
			return 0, err
		}
	}
	stale, err := w.places("SELECT place FROM stale ORDER BY place LIMIT ?", int64(most-len(places)))
	if err != nil {
		return 0, err
	}
	for _, q := range [...]string{"DELETE FROM words WHERE rowid=?", "DELETE FROM stale WHERE place=?"} {
		for _, p := range stale {
			if err := run(w.conn, q, p); err != nil {
				return 0, err
			}
		}
	}
	for _, p := range stale {
		if err := w.addWords(p); err != nil {
			return 0, err
		}
	}
	return len(places) + len(stale), nil
}

func (w *writer) places(query string, args ...int64) (places []int64, err error) {
	err = each(w.conn, query, func(s *sqlite.Stmt) error {
		places = append(places, s.ColumnInt64(0))
		return nil
	}, args...)
	return places, err
}

func (w *writer) addWords(place int64) error {
	r, ok, err := w.names.at(w.conn, place)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: no run at place %d", ErrDamaged, place)
	}
	s, err := prepare(w.conn, "INSERT INTO words(rowid, text) VALUES(?, ?)")
	if err != nil {
		return err
	}
	s.BindInt64(1, place)
	s.BindText(2, document(&r))
	_, err = s.Step()
	return err
}

// behind counts the runs that are not indexed, up to maxBehind.
func behind(c *sqlite.Conn) (int, error) {
	n, err := queryInt(c, fmt.Sprintf(`SELECT
		(SELECT count(*) FROM (SELECT 1 FROM runs WHERE place>(SELECT value FROM meta WHERE key=%d) LIMIT %d)) +
		(SELECT count(*) FROM (SELECT 1 FROM stale LIMIT %d))`, metaIndexed, maxBehind, maxBehind))
	return int(min(n, maxBehind)), err
}
