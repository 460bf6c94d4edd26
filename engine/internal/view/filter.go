package view

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"time"
)

// Order is the order of a list.
type Order string

// The orders of a list. The order by creation has a precision of a millisecond. Runs of the same
// millisecond are in a fixed, but arbitrary order.
const (
	Newest  Order = "newest" // by creation, newest first; the default
	Oldest  Order = "oldest" // by creation, oldest first
	Soonest Order = "next"   // by Run.Next; only runs whose Next is not zero
)

// orderBy has the terms by which SQL sorts runs in each order.
var orderBy = map[Order]string{Newest: "place DESC", Oldest: "place", Soonest: "next, place"}

// The default and the maximum of Filter.Limit.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// Filter says which runs a list has. A field with its zero value does not exclude any run.
type Filter struct {
	States      []string // runs in any of these states
	Workflow    string
	Exclude     []string  // leaves out these workflows: names, or patterns as "a.*" and "*.b"
	Search      string    // see selection.find: an id, words, beginnings of words, or a part of an id or key
	Error       string    // runs whose error has the same Pattern as this text
	Since       time.Time // runs created at or after this millisecond
	Until       time.Time // runs created before this millisecond
	MinAttempts int
	Tags        []string `json:",omitempty"` // runs with all these tags: see Tag
	After       string   // Page.Next of the previous page; "" for the first
	Limit       int      // 0 means DefaultLimit; the maximum is MaxLimit
	Order       Order
}

// Page is a part of a list.
type Page struct {
	Runs []Run  // without Detail; Input and Output cut to Preview bytes
	Next string // cursor for Filter.After; "" if this is the last page

	// Cursors has a cursor for each run. With it as Filter.After, a list continues after
	// that run.
	Cursors []string

	// SearchBehind is, in a search, the number of runs that are not indexed yet and so may
	// be missing. It is at most 10 000.
	SearchBehind int

	// Distance says how a search found the runs. A smaller value means a closer match. All
	// runs of a page have the same value.
	Distance int
}

// The ways in which a search finds runs, the closest match first.
const (
	byID    = iota // the text is the beginning of an id
	byWords        // the words of the text are words of the run
	byStems        // the words of the text are beginnings of words of the run
	byPiece        // the text is a part of an id or a key
)

// key is the sort key of a run in a list. next is 0 unless the order is Soonest.
type key struct{ next, place int64 }

// selection is a filter in the values that the tables store: numbers instead of names, and
// places (see place.go) instead of times.
type selection struct {
	names      *names // names of the view
	states     []int64
	anyState   bool
	workflow   int64 // 0 means any
	excluded   []int64
	from, to   int64 // range of places, without to
	attempts   int64 // least value of the column attempts
	errorFirst int64 // range of the column error
	errorLast  int64 // 0 means any error, and runs without one
	tags       []int64
	order      Order
	search     string
	limit      int

	mode  int    // byID, byWords and so on: how the search finds runs
	after *key   // last run of the previous page; nil for the first page
	id    uint32 // checksum of the filter: a cursor is valid only for the same filter
}

// resolve returns the selection of a filter. ok is false if no run can match.
func (n *names) resolve(f Filter) (s selection, ok bool, err error) {
	s = selection{
		names: n,
		from:  minPlace, to: maxPlace, order: cmp.Or(f.Order, Newest), search: f.Search,
		attempts: int64(f.MinAttempts) + firstName, anyState: len(f.States) == 0,
		limit: cmp.Or(min(max(f.Limit, 0), MaxLimit), DefaultLimit),
	}
	if orderBy[s.order] == "" {
		return s, false, fmt.Errorf("unknown order %q", f.Order)
	}
	if !f.Since.IsZero() {
		s.from = placeOf(f.Since)
	}
	if !f.Until.IsZero() {
		s.to = placeOf(f.Until)
	}
	if f.Error != "" {
		s.errorFirst, s.errorLast = errorRange(Pattern(f.Error))
	}
	for _, tag := range f.Tags {
		s.tags = append(s.tags, tagKey(tag))
	}
	if err := s.resume(f); err != nil {
		return s, false, err
	}
	s.states = n.oneOf(f.States)
	ok = s.anyState || len(s.states) > 0
	s.excluded = n.matching(func(name string) bool { return Like(f.Exclude, name) })
	if f.Workflow != "" {
		var known bool
		s.workflow, known = n.id(f.Workflow)
		ok = ok && known && !slices.Contains(s.excluded, s.workflow)
	}
	return s, ok, nil
}

// resume decodes the cursor of the filter. It fails if the cursor is from a list with another
// filter: that would skip runs silently.
func (s *selection) resume(f Filter) error {
	after := f.After
	f.After, f.Limit = "", 0
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	s.id = crc32.ChecksumIEEE(text)
	if after == "" {
		return nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(after)
	if err != nil || len(b) != cursorSize || binary.BigEndian.Uint32(b[17:]) != s.id || b[0] > byPiece {
		return fmt.Errorf("%w: %.100q", ErrCursor, after)
	}
	s.mode = int(b[0])
	s.after = &key{int64(binary.BigEndian.Uint64(b[1:])), int64(binary.BigEndian.Uint64(b[9:]))}
	if s.order == Newest {
		s.to = min(s.to, s.after.place)
	}
	if s.order == Oldest {
		s.from = max(s.from, s.after.place+1)
	}
	return nil
}

const cursorSize = 1 + 8 + 8 + 4

// cursor returns the cursor of a run: the list continues after it.
func (s *selection) cursor(k key) string {
	b := append(make([]byte, 0, cursorSize), byte(s.mode))
	b = binary.BigEndian.AppendUint64(b, uint64(k.next))
	b = binary.BigEndian.AppendUint64(b, uint64(k.place))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, s.id))
}

// past returns the key after which the list continues, for the order Soonest.
func (s *selection) past() key {
	if s.after == nil {
		return key{-1 << 63, minPlace}
	}
	return *s.after
}

// Like reports whether a name matches one of the patterns: a name, a prefix with a * at its end,
// or a suffix with a * at its beginning.
func Like(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if head, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(name, head)
		}
		if tail, ok := strings.CutPrefix(p, "*"); ok {
			return strings.HasSuffix(name, tail)
		}
		return name == p
	})
}

// names maps the names of workflows and states to numbers, which rows and indexes store. The
// writer adds a name before it commits the transaction, so that readers know every number. It
// removes the name again if the commit fails.
type names struct {
	mu   sync.RWMutex
	ids  map[string]int64
	text map[int64]string
	next int64 // a number that is not used
}

// firstName is the first number of a name. SQLite stores 0 and 1 without any bytes: if a row could
// change from these to other values, it would grow and might have to move. For the same reason
// the column attempts has firstName added to it.
const firstName = 2

func (n *names) add(id int64, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ids[text], n.text[id] = id, text
	n.next = max(n.next, id+1)
}

func (n *names) remove(ids []int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		delete(n.ids, n.text[id])
		delete(n.text, id)
	}
}

func (n *names) id(text string) (int64, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	id, ok := n.ids[text]
	return id, ok
}

func (n *names) name(id int64) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.text[id]
}

// matching returns the numbers of the names for which is returns true, in ascending order.
func (n *names) matching(is func(name string) bool) (ids []int64) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for text, id := range n.ids {
		if is(text) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// oneOf returns the numbers of those of the names that are known.
func (n *names) oneOf(texts []string) []int64 {
	return n.matching(func(name string) bool { return slices.Contains(texts, name) })
}
