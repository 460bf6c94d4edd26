package view

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Order is the order of a list.
type Order string

// The orders of a list. By creation means by the millisecond of Created; within
// one the order is fixed but means nothing.
const (
	Newest  Order = "newest" // by creation, the latest first; also if none is named
	Oldest  Order = "oldest" // by creation
	Soonest Order = "next"   // by Next; only runs that have one
)

// Limits of Filter.Limit.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// Filter says which runs are wanted. What is zero does not matter.
type Filter struct {
	States      []string // any of them
	Workflow    string
	Exclude     []string  // workflows that are left out: names, and beginnings and ends of such as in "a.*" and "*.b"
	Search      string    // words that all occur, or if no run has them beginnings of words; or an id, a key, or a piece of one
	Error       string    // a text, or a pattern of Groups
	Since       time.Time // created at or after, to the millisecond
	Until       time.Time // created before, to the millisecond
	MinAttempts int
	After       string // Page.Next of the page before
	Limit       int    // 0 means DefaultLimit; more than MaxLimit means that
	Order       Order
}

// Page is a part of a list.
type Page struct {
	Runs []Run  // without Detail; Input and Output cut to Preview bytes
	Next string // for Filter.After; "" if this is the last page

	// Cursors are those of the runs: a list can be gone on with after any of them.
	Cursors []string

	// SearchBehind is, in a search, how many runs are not indexed yet and so may
	// be missing. It does not count further than 10 000.
	SearchBehind int

	// Distance is, in a search, how it found the runs: the smaller, the closer they
	// are to what was searched for. All runs of a page are equally close.
	Distance int
}

// How a search looks for runs.
const (
	byID    = iota // the text is the beginning of an id
	byWords        // its words are words of the run
	byStems        // its words are beginnings of such
	byPiece        // the text is a piece of an id or a key
)

// key is where a run is in a list.
type key struct{ next, place int64 }

// selection is a filter in terms of the tables.
type selection struct {
	names      *names // of the view
	states     []int64
	anyState   bool
	workflow   int64 // 0: any
	excluded   []int64
	from, to   int64 // places, without to
	attempts   int64 // as the column has it
	errorFirst int64
	errorLast  int64 // 0: any, also none
	order      Order
	search     string
	limit      int

	mode  int // of the search
	after *key
	id    uint32 // tells filters apart
}

// resolve looks up the names of a filter. It reports false if nothing can match.
func (n *names) resolve(f Filter) (s selection, ok bool, err error) {
	s = selection{
		names: n,
		from:  minPlace, to: maxPlace, order: cmp.Or(f.Order, Newest), search: f.Search,
		attempts: int64(f.MinAttempts) + firstName, anyState: len(f.States) == 0,
		limit: cmp.Or(min(max(f.Limit, 0), MaxLimit), DefaultLimit),
	}
	switch s.order {
	case Newest, Oldest, Soonest:
	default:
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
	if err := s.resume(f); err != nil {
		return s, false, err
	}
	s.states = n.known(f.States)
	ok = s.anyState || len(s.states) > 0
	s.excluded = n.like(f.Exclude)
	if f.Workflow != "" {
		var known bool
		s.workflow, known = n.id(f.Workflow)
		ok = ok && known && !slices.Contains(s.excluded, s.workflow)
	}
	return s, ok, nil
}

// resume reads the place in the list. The list it belongs to must be the same:
// going on in another one would skip runs without a word.
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

// cursor is the text that stands for a place in the list.
func (s *selection) cursor(k key) string {
	b := append(make([]byte, 0, cursorSize), byte(s.mode))
	b = binary.BigEndian.AppendUint64(b, uint64(k.next))
	b = binary.BigEndian.AppendUint64(b, uint64(k.place))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, s.id))
}

// past is the place in the order of Next from which the list goes on.
func (s *selection) past() key {
	if s.after == nil {
		return key{-1 << 63, minPlace}
	}
	return *s.after
}

// Like reports whether a name is one of the patterns, or begins with that of
// "a.*", or ends with that of "*.b".
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

// names are the workflows and states, of which rows and indexes keep numbers.
// The writer adds a name before its transaction is committed, so that no reader
// meets a number that it does not know, and takes it back if it is not.
type names struct {
	mu   sync.RWMutex
	ids  map[string]int64
	text map[int64]string
	next int64
}

// firstName is not smaller because SQLite stores 0 and 1 in no bytes at all: a
// row whose state changes would change its length and could not stay in place.
// Attempts are counted from it for the same reason.
const firstName = 2

func (n *names) add(id int64, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ids == nil {
		n.ids, n.text, n.next = map[string]int64{}, map[int64]string{}, firstName
	}
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

// free returns a number that no name has.
func (n *names) free() int64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return max(n.next, firstName)
}

func (n *names) known(texts []string) []int64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	set := map[int64]bool{}
	for _, t := range texts {
		if id, ok := n.ids[t]; ok {
			set[id] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// like returns the numbers of the names that a pattern describes.
func (n *names) like(patterns []string) (ids []int64) {
	if len(patterns) == 0 {
		return nil
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	for text, id := range n.ids {
		if Like(patterns, text) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
