package dvm

// recentKept is how many jobs that are over a runner remembers, so that it does not
// do one twice.
const recentKept = 4096

// recentSet remembers the last few ids.
type recentSet struct {
	ids  map[string]bool
	ring []string
	next int
}

func newRecentSet(size int) recentSet {
	return recentSet{ids: map[string]bool{}, ring: make([]string, size)}
}

func (s *recentSet) has(id string) bool { return s.ids[id] }

func (s *recentSet) add(id string) {
	delete(s.ids, s.ring[s.next])
	s.ring[s.next] = id
	s.ids[id] = true
	s.next = (s.next + 1) % len(s.ring)
}
