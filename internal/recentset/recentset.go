// Package recentset has a set that keeps only the ids that were added last.
package recentset

// Set stores the ids that were added last. Make one with [New].
type Set struct {
	ids  []string // a ring
	next int      // place of the oldest
	set  map[string]bool
}

// New returns an empty set that keeps size ids.
func New(size int) Set { return Set{ids: make([]string, size), set: map[string]bool{}} }

// Has reports whether the id is in the set.
func (s *Set) Has(id string) bool { return s.set[id] }

// Add adds an id, unless the set has it already. A full set drops the id that was
// added first.
func (s *Set) Add(id string) {
	if s.set[id] {
		return
	}
	delete(s.set, s.ids[s.next])
	s.ids[s.next] = id
	s.set[id] = true
	s.next = (s.next + 1) % len(s.ids)
}
