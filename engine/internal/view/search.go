package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"zombiezen.com/go/sqlite"
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
// Whole words are tried before beginnings of words because they are faster: the runs of all words
// with the same beginning must be sorted.
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
			keys, err = withWords(c, s, query(text, mode == byStems))
		case byPiece:
			keys, err = s.withPiece(c, text)
		}
		if s.mode = mode; err != nil || len(keys) > 0 {
			return keys, err
		}
	}
	return nil, nil
}

// wordSearch finds the runs of a selection that have all words of a list.
type wordSearch struct {
	of    selection
	conn  *sqlite.Conn
	list  []searchWord
	index *matches
	rows  *sqlite.Stmt // reads the run at a place if it is in the selection
}

// withWords returns the runs that have all words of a list, in the order of the selection.
func withWords(c *sqlite.Conn, s *selection, list []searchWord) (keys []key, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	m, err := newMatches(c, s, list)
	if err != nil {
		return nil, err
	}
	q := "SELECT " + columns + ", ifnull(next, 0) FROM runs WHERE place=?" + s.conditions()
	if s.order == Soonest {
		past := s.past()
		q += fmt.Sprintf(" AND next IS NOT NULL AND (next, place)>(%d, %d)", past.next, past.place)
	}
	st, _, err := c.PrepareTransient(q)
	if err != nil {
		return nil, err
	}
	defer st.Finalize() //nolint:errcheck // it repeats the error of Step
	w := wordSearch{of: *s, conn: c, list: list, index: m, rows: st}
	if s.order == Soonest {
		return w.soonest()
	}
	return w.inOrder()
}

// inOrder returns the keys in the order of their places.
func (w *wordSearch) inOrder() (keys []key, err error) {
	misses := 0
	for len(keys) <= w.of.limit {
		if misses >= maxMisses {
			misses = 0
			if ok, err := w.skip(); err != nil || !ok {
				return keys, err
			}
		}
		k, ok, more, err := w.next()
		switch {
		case err != nil:
			return nil, err
		case !more:
			return keys, nil
		case ok:
			keys = append(keys, k)
		default:
			misses++
		}
	}
	return keys, nil
}

// soonest returns the keys in the order of their due times.
func (w *wordSearch) soonest() (found []key, err error) {
	var keys []key
	for {
		k, ok, more, err := w.next()
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if ok {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, w.of.compare)
	for _, k := range keys {
		r, ok, err := w.of.names.at(w.conn, k.place)
		if err != nil {
			return nil, err
		}
		if ok && hasWords(&r, w.list) {
			found = append(found, k)
		}
		if len(found) > w.of.limit {
			break
		}
	}
	return found, nil
}

// next reads the run at the next place of the search index. ok is false if the run is not in the
// selection, and more is false after the last place.
func (w *wordSearch) next() (k key, ok, more bool, err error) {
	place, more, err := w.index.next()
	if err != nil || !more {
		return key{}, false, false, err
	}
	k, ok, err = w.check(place)
	return k, ok, true, err
}

// maxMisses is how many runs that are not in the selection are read before the next one that is in
// it is looked up: as many as can be read in the time of a lookup.
const maxMisses = 50

// skip skips the places before that of the next run of the selection. It returns false if there is
// no such run.
func (w *wordSearch) skip() (bool, error) {
	m, next := w.index, w.of
	next.search, next.limit = "", 0
	if m.newest {
		next.to = min(next.to, m.last)
	} else {
		next.from = max(next.from, m.last+1)
	}
	keys, err := next.keys(w.conn)
	if err != nil || len(keys) == 0 {
		return false, err
	}
	m.skip(keys[0].place)
	return true, nil
}

// check reads the run at a place. It returns false if the run is not in the selection or does not
// have the words. If the order is Soonest, it does not check the words.
func (w *wordSearch) check(place int64) (k key, ok bool, err error) {
	st := w.rows
	if err := st.Reset(); err != nil {
		return key{}, false, err
	}
	st.BindInt64(1, place)
	row, err := st.Step()
	if err != nil || !row {
		return key{}, false, err
	}
	k = key{st.ColumnInt64(6), place}
	if w.of.order == Soonest {
		return k, true, nil
	}
	r, _, err := w.of.names.whole(w.conn, st)
	return k, err == nil && hasWords(&r, w.list), err
}

// matches has the places that the search index has for all words of a list.
type matches struct {
	conn     *sqlite.Conn
	list     []searchWord
	from, to int64 // range of places, without to
	newest   bool  // the highest place comes first
	last     int64 // the last place that next returned
	unread   []segment
	found    [][]int64 // places of the segments that were read; the last of each comes first
}

// newMatches returns the places of the selection that may have all words of a list.
func newMatches(c *sqlite.Conn, s *selection, list []searchWord) (*matches, error) {
	all, err := readSegments(c)
	if err != nil {
		return nil, err
	}
	m := &matches{conn: c, list: list, from: s.from, to: s.to, newest: s.order == Newest}
	for _, g := range all {
		if g.first < s.to && g.last >= s.from {
			m.unread = append(m.unread, g)
		}
	}
	slices.SortFunc(m.unread, func(a, b segment) int {
		if m.newest {
			return cmp.Compare(a.last, b.last)
		}
		return cmp.Compare(b.first, a.first)
	})
	return m, nil
}

// next returns the next place. It reads a segment only when the place may be in it.
func (m *matches) next() (place int64, ok bool, err error) {
	for {
		for _, f := range m.found {
			if p := f[len(f)-1]; !ok || m.before(p, place) {
				place, ok = p, true
			}
		}
		n := len(m.unread) - 1
		if n < 0 || ok && m.before(place, m.unread[n].first) && m.before(place, m.unread[n].last) {
			break // the segment has neither the place nor one that comes before it
		}
		places, err := m.read(&m.unread[n])
		if err != nil {
			return 0, false, err
		}
		if m.unread = m.unread[:n]; len(places) > 0 {
			m.found = append(m.found, places)
		}
	}
	for i, f := range m.found {
		if f[len(f)-1] == place {
			m.found[i] = f[:len(f)-1]
		}
	}
	m.dropEmpty()
	m.last = place
	return place, ok, nil
}

// skip skips the places that come before the given one.
func (m *matches) skip(place int64) {
	m.unread = slices.DeleteFunc(m.unread, func(g segment) bool { return m.before(g.first, place) && m.before(g.last, place) })
	for i, f := range m.found {
		m.found[i] = f[:sort.Search(len(f), func(k int) bool { return m.before(f[k], place) })]
	}
	m.dropEmpty()
}

func (m *matches) dropEmpty() {
	m.found = slices.DeleteFunc(m.found, func(f []int64) bool { return len(f) == 0 })
}

// before reports whether the place a comes before b.
func (m *matches) before(a, b int64) bool { return a != b && a > b == m.newest }

// fewPlaces is how many places a word has in a segment at most to be called rare.
const fewPlaces = 500

// read returns the places of a segment that may have all words. If there are rare words, it does
// not read all places of the others: checking the runs with the rare words takes less time.
func (m *matches) read(g *segment) (places []int64, err error) {
	places, rare, err := m.common(g, fewPlaces)
	if err == nil && !rare {
		places, _, err = m.common(g, math.MaxInt)
	}
	if err != nil {
		return nil, err
	}
	from, _ := slices.BinarySearch(places, m.from)
	to, _ := slices.BinarySearch(places, m.to)
	if places = places[from:to]; !m.newest {
		slices.Reverse(places)
	}
	return places, nil
}

// common returns the places of a segment that have all the words with up to about most places. any
// is false if there is no such word.
func (m *matches) common(g *segment, most int) (places []int64, any bool, err error) {
	for _, w := range m.list {
		list, all, err := g.places(m.conn, w, most)
		if err != nil {
			return nil, false, err
		}
		if !all {
			continue
		}
		if any {
			list = intersect(places, list)
		}
		if places, any = list, true; len(places) == 0 {
			break
		}
	}
	return places, any, nil
}

// intersect returns the numbers that are in both lists. The lists are in ascending order. The
// result uses the memory of a.
func intersect(a, b []int64) []int64 {
	both := a[:0]
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			both, a, b = append(both, a[0]), a[1:], b[1:]
		}
	}
	return both
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

// idsAside reads the places of runs in the table aside whose id begins with a text. The second argument
// is the text and a byte that no id has, because ids are UTF-8.
const idsAside = "SELECT place FROM aside WHERE id>=? AND id<? ORDER BY id LIMIT ?"

// withID returns the runs whose id begins with the text, at home and aside.
func (s *selection) withID(c *sqlite.Conn, text string) ([]key, error) {
	places, err := queryPlaces(c, idsAside, []byte(text), []byte(text+"\xff"), int64(maxFound))
	if err != nil {
		return nil, err
	}
	prefix := strings.ToLower(text)
	from, to := idRange(prefix)
	ranges := [][2]int64{{from, to}}
	for _, p := range places {
		ranges = append(ranges, [2]int64{p, p + 1})
	}
	var keys []key
	for _, g := range ranges {
		part := *s
		part.from, part.to = max(s.from, g[0]), min(s.to, g[1])
		found, err := part.walk(c, -1, func(r *Run) bool { return strings.HasPrefix(r.ID, prefix) || strings.HasPrefix(r.ID, text) })
		if err != nil {
			return nil, err
		}
		keys = append(keys, found...)
	}
	return slices.Compact(s.first(keys)), nil
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
	order, want := orderBy[s.order], s.limit+1
	if s.order == Soonest {
		order, want = "place", maxFound
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

// idRange returns the range of places of the runs at home whose id begins with the prefix. The range
// is empty if no ULID begins with it.
func idRange(prefix string) (from, to int64) {
	missing := max(26-len(prefix), 0)
	first, ok := parseULID(prefix + strings.Repeat("0", missing))
	if !ok {
		return 0, 0
	}
	last, _ := parseULID(prefix + strings.Repeat("z", missing))
	return placeAt(first.milli), placeAt(last.milli + 1)
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
	maybe, err := withWords(c, &early, query(text, false))
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
