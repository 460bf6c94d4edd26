package view

import (
	"fmt"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

const (
	minPiece = 4      // characters of an id that a search takes for one
	maxPiece = 50_000 // runs that are looked at for a piece of an id or a key
	maxFound = 10_000 // runs that are sorted by due time
)

// find returns the runs that a search finds: those whose id begins with it; if
// there are none, those that have all its words; if there are none, words that
// begin so; and if there are none either, those of the latest whose id or key
// has it somewhere. The first page decides, and its cursor remembers.
//
// Whole words come first because FTS5 walks the runs of a word as they are asked
// for, but gathers all runs of all words that begin so before it answers.
func (s *selection) find(c *sqlite.Conn) (keys []key, err error) {
	text := strings.TrimSpace(s.search)
	single := len(text) >= minPiece && len(text) <= maxWord && !strings.ContainsAny(text, " \t\r\n")
	for _, mode := range [...]int{byID, byWords, byStems, byPiece} {
		if s.after != nil && mode != s.mode || (mode == byID || mode == byPiece) && !single {
			continue
		}
		switch mode {
		case byID:
			keys, err = s.withID(c, text)
		case byWords, byStems:
			keys, err = s.withWords(c, query(text, mode == byStems))
		case byPiece:
			keys, err = s.withPiece(c, text)
		}
		if s.mode = mode; err != nil || len(keys) > 0 {
			return keys, err
		}
	}
	return nil, nil
}

// withWords asks the index of words. It answers in order of place.
func (s *selection) withWords(c *sqlite.Conn, match string) (keys []key, err error) {
	if match == "" {
		return nil, nil
	}
	q := fmt.Sprintf(`SELECT runs.place, ifnull(runs.next, 0) FROM words CROSS JOIN runs ON runs.place=words.rowid
		WHERE words MATCH ? AND words.rowid>=%d AND words.rowid<%d`, s.from, s.to) + s.conditions()
	switch s.order {
	case Newest:
		q += " ORDER BY words.rowid DESC"
	case Oldest:
		q += " ORDER BY words.rowid"
	default:
		past := s.past()
		q += fmt.Sprintf(` AND runs.next IS NOT NULL AND (runs.next, runs.place)>(%d, %d)
			ORDER BY runs.next, runs.place`, past.next, past.place)
	}
	err = sqlitex.ExecuteTransient(c, fmt.Sprintf("%s LIMIT %d", q, s.limit+1), &sqlitex.ExecOptions{
		Args: []any{match},
		ResultFunc: func(st *sqlite.Stmt) error {
			keys = append(keys, key{st.ColumnInt64(1), st.ColumnInt64(0)})
			return nil
		},
	})
	return keys, err
}

// conditions returns what is asked of rows, as numbers in the statement's text:
// such statements are not kept.
func (s *selection) conditions() string {
	var b strings.Builder
	if s.workflow != 0 {
		fmt.Fprintf(&b, " AND runs.workflow=%d", s.workflow)
	}
	if len(s.excluded) > 0 {
		fmt.Fprintf(&b, " AND runs.workflow NOT IN (%s)", numbers(s.excluded))
	}
	if !s.anyState {
		fmt.Fprintf(&b, " AND runs.state IN (%s)", numbers(s.states))
	}
	if s.attempts > firstName {
		fmt.Fprintf(&b, " AND runs.attempts>=%d", s.attempts)
	}
	if s.errorLast != 0 {
		fmt.Fprintf(&b, " AND runs.error BETWEEN %d AND %d", s.errorFirst, s.errorLast)
	}
	return b.String()
}

// numbers writes numbers as SQL has them.
func numbers(list []int64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}

// withID looks where runs are whose id begins so, and among those put aside.
func (s *selection) withID(c *sqlite.Conn, text string) ([]key, error) {
	prefix := strings.ToLower(text)
	var keys []key
	if from, to, ok := idRange(prefix); ok {
		part := *s
		part.from, part.to = max(s.from, from), min(s.to, to)
		var err error
		if keys, err = part.walk(c, -1, func(r *Run) bool { return strings.HasPrefix(r.ID, prefix) }); err != nil {
			return nil, err
		}
	}
	places, err := asidePlaces(c, text, maxFound)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		part := *s
		part.from, part.to = max(s.from, p), min(s.to, p+1)
		one, err := part.walk(c, -1, func(*Run) bool { return true })
		if err != nil {
			return nil, err
		}
		keys = append(keys, one...)
	}
	keys = s.first(keys)
	return slices.Compact(keys), nil
}

// withPiece looks at the latest runs, one by one.
func (s *selection) withPiece(c *sqlite.Conn, text string) ([]key, error) {
	lower := strings.ToLower(text)
	keys, err := s.walk(c, maxPiece, func(r *Run) bool {
		return strings.Contains(r.ID, lower) || strings.Contains(r.ID, text) || strings.Contains(strings.ToLower(r.Key), lower)
	})
	return s.first(keys), err
}

// walk reads the runs of a selection in order of place and keeps those that
// match, as many as a page needs, or enough to sort them. It looks at no more
// than most runs; -1 means all.
func (s *selection) walk(c *sqlite.Conn, most int, match func(*Run) bool) (keys []key, err error) {
	if s.from >= s.to {
		return nil, nil
	}
	order, want := "place", s.limit+1
	if s.order == Newest {
		order = "place DESC"
	}
	if s.order == Soonest {
		want = maxFound
	}
	q := fmt.Sprintf("SELECT %s, next FROM runs WHERE place>=%d AND place<%d%s ORDER BY %s LIMIT %d",
		columns, s.from, s.to, s.conditions(), order, most)
	st, _, err := c.PrepareTransient(q)
	if err != nil {
		return nil, err
	}
	defer st.Finalize() //nolint:errcheck // it repeats the error of Step
	for len(keys) < want {
		row, err := st.Step()
		if err != nil || !row {
			return keys, err
		}
		r, place, _, err := s.names.scan(st)
		if err != nil {
			return nil, err
		}
		k := key{0, place}
		if s.order == Soonest {
			k.next = st.ColumnInt64(6)
			past := s.past()
			if st.ColumnIsNull(6) || k.next < past.next || k.next == past.next && place <= past.place {
				continue
			}
		}
		if match(&r) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// idRange returns the places of the runs at home whose id begins so.
func idRange(prefix string) (from, to int64, ok bool) {
	if len(prefix) > 26 {
		return 0, 0, false
	}
	first, ok := parseULID(prefix + strings.Repeat("0", 26-len(prefix)))
	if !ok {
		return 0, 0, false
	}
	last, _ := parseULID(prefix + strings.Repeat("z", 26-len(prefix)))
	return placeAt(first.milli), placeAt(last.milli + 1), true
}

// asidePlaces returns the places of runs put aside whose id begins so.
func asidePlaces(c *sqlite.Conn, prefix string, most int) (places []int64, err error) {
	s, err := prepare(c, "SELECT id, place FROM aside WHERE id>=? ORDER BY id LIMIT ?")
	if err != nil {
		return nil, err
	}
	defer s.Reset() //nolint:errcheck // it repeats the error of Step
	s.BindBytes(1, []byte(prefix))
	s.BindInt64(2, int64(most))
	for {
		row, err := s.Step()
		if err != nil || !row || !strings.HasPrefix(string(columnBytes(s, 0)), prefix) {
			return places, err
		}
		places = append(places, s.ColumnInt64(1))
	}
}

// withKey returns runs that have exactly this key.
func (s *selection) withKey(c *sqlite.Conn, text string) (keys []key, err error) {
	is := func(r *Run) bool { return r.Key == text }
	indexed, err := queryInt(c, fmt.Sprintf("SELECT value FROM meta WHERE key=%d", metaIndexed))
	if err != nil {
		return nil, err
	}
	late := *s
	late.from = indexed + 1
	if keys, err = late.walk(c, maxPiece, is); err != nil {
		return nil, err
	}
	early := *s
	early.to, early.limit = indexed+1, MaxLimit
	maybe, err := early.withWords(c, query(text, false))
	if err != nil {
		return nil, err
	}
	// The words of these have changed, and their keys may have.
	err = each(c, "SELECT place FROM stale ORDER BY place DESC LIMIT ?", func(st *sqlite.Stmt) error {
		maybe = append(maybe, key{0, st.ColumnInt64(0)})
		return nil
	}, MaxLimit)
	if err != nil {
		return nil, err
	}
	for _, k := range maybe {
		r, ok, err := s.names.at(c, k.place)
		if err != nil {
			return nil, err
		}
		if ok && is(&r) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}
