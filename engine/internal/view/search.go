package view

import (
	"fmt"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

const (
	minPiece = 4      // least length of a search that may be a part of an id or a key
	maxPiece = 50_000 // most runs that are read to find a part of an id or a key
	maxFound = 10_000 // most runs that are sorted by due time
)

// find returns the keys of the runs that a search finds. It tries, until one finds runs:
//
//  1. runs whose id begins with the text
//  2. runs that have all its words
//  3. runs that have words which begin with its words
//  4. of the latest runs, those whose id or key contains the text
//
// The first page decides which of these it is. Its cursor has the decision for the next pages.
//
// Whole words are tried before beginnings of words because they are faster: FTS5 reads the runs
// of a word one by one, but collects all runs of all words with the same beginning first.
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

// withWords returns the runs that match an FTS5 query, in the order of the selection.
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

// conditions returns the SQL conditions of the selection, each with AND before it. The values are
// in the text of the statement, because such statements are not cached.
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
	for _, key := range s.tags {
		fmt.Fprintf(&b, " AND EXISTS(SELECT 1 FROM tags AS t WHERE t.place=runs.place AND t.key=%d)", key)
	}
	return b.String()
}

// numbers returns the numbers as a list for SQL, with commas.
func numbers(list []int64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}

// withID returns the runs whose id begins with the text, at home and aside.
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
	places, err := asidePlaces(c, text)
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

// withPiece returns the runs whose id or key contains the text. It reads at most maxPiece runs.
func (s *selection) withPiece(c *sqlite.Conn, text string) ([]key, error) {
	lower := strings.ToLower(text)
	keys, err := s.walk(c, maxPiece, func(r *Run) bool {
		return strings.Contains(r.ID, lower) || strings.Contains(r.ID, text) || strings.Contains(strings.ToLower(r.Key), lower)
	})
	return s.first(keys), err
}

// walk reads up to most runs of a selection in order of place; -1 means all. It returns the
// keys of the runs that match: as many as a page needs, or up to maxFound if they must be
// sorted.
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

// idRange returns the range of places of the runs at home whose id begins with the prefix. ok is
// false if no ULID begins with it.
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

// asidePlaces returns the places of up to maxFound runs in the table aside whose id begins with
// the prefix.
func asidePlaces(c *sqlite.Conn, prefix string) (places []int64, err error) {
	s, err := prepare(c, "SELECT id, place FROM aside WHERE id>=? ORDER BY id LIMIT ?", []byte(prefix), int64(maxFound))
	if err != nil {
		return nil, err
	}
	defer s.Reset() //nolint:errcheck // it repeats the error of Step
	for {
		row, err := s.Step()
		if err != nil || !row || !strings.HasPrefix(string(columnBytes(s, 0)), prefix) {
			return places, err
		}
		places = append(places, s.ColumnInt64(1))
	}
}

// withKey returns runs whose key is the text. View.Find says among which runs it searches.
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
	// The texts of these runs have changed since they were indexed: the key may be new.
	err = each(c, "SELECT place FROM stale ORDER BY place DESC LIMIT ?", func(st *sqlite.Stmt) error {
		maybe = append(maybe, key{0, st.ColumnInt64(0)})
		return nil
	}, int64(MaxLimit))
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
