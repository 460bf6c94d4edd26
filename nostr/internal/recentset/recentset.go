// Package recentset stores the last ids of many.
package recentset

// Set stores the last ids. The zero value stores none; see [New].
type Set struct {
	ids  []string // a ring
	next int      // place of the oldest
	set  map[string]bool
}

// New returns an empty set for so many ids.
func New(size int) Set { return Set{ids: make([]string, size), set: map[string]bool{}} }

// Has reports whether the id is one of the last.
func (s *Set) Has(id string) bool { return s.set[id] }

// Add adds an id in place of the oldest one, unless the set has it.
func (s *Set) Add(id string) {
	if s.set[id] {
		return
	}
	delete(s.set, s.ids[s.next])
	s.ids[s.next] = id
	s.set[id] = true
	s.next = (s.next + 1) % len(s.ids)
}
