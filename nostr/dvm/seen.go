package dvm

import (
	"encoding/hex"
	"time"
)

// seenSet stores ids for a time. It never drops one early to make room for
// another: otherwise an attacker could make a job run twice.
type seenSet struct {
	ttl   time.Duration
	limit int
	at    map[eventID]time.Time
	order []seenID // in the order of arrival; a removed id keeps its place
	head  int      // index of the first place in use
}

type eventID [32]byte

type seenID struct {
	id eventID
	at time.Time
}

func newSeenSet(ttl time.Duration, limit int) seenSet {
	return seenSet{ttl: ttl, limit: limit, at: map[eventID]time.Time{}}
}

func parseID(text string) (id eventID, ok bool) {
	n, err := hex.Decode(id[:], []byte(text)[:min(len(text), 2*len(id))])
	return id, err == nil && n == len(id) && len(text) == 2*len(id)
}

func (s *seenSet) has(id eventID, now time.Time) bool {
	s.expire(now)
	_, ok := s.at[id]
	return ok
}

// full reports whether there is no room for another id.
func (s *seenSet) full() bool { return len(s.order)-s.head >= s.limit }

// add stores an id. The set must not be full.
func (s *seenSet) add(id eventID, now time.Time) {
	s.at[id] = now
	s.order = append(s.order, seenID{id, now})
}

// remove removes the id.
func (s *seenSet) remove(id eventID) {
	delete(s.at, id)
	// Usually it is the last one. Its place is freed at once, so that a
	// customer who is refused again and again does not fill the set.
	if last := len(s.order) - 1; last >= s.head && s.order[last].id == id {
		s.order = s.order[:last]
	}
}

func (s *seenSet) expire(now time.Time) {
	for s.head < len(s.order) && now.Sub(s.order[s.head].at) >= s.ttl {
		if first := s.order[s.head]; s.at[first.id].Equal(first.at) {
			delete(s.at, first.id)
		}
		s.head++
	}
	if s.head > s.limit/2 && s.head > len(s.order)/2 {
		s.order = append([]seenID(nil), s.order[s.head:]...)
		s.head = 0
	}
}

// recentKept is how many finished jobs a runner records, so that it does not
// run one twice.
const recentKept = 4096
