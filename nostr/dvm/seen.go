package dvm

import (
	"encoding/hex"
	"time"
)

// seenSet remembers ids for a while. It never forgets one before its time to make
// room for another: whoever could make it forget could have a job run twice.
type seenSet struct {
	keep time.Duration
	most int
	at   map[eventID]time.Time
	line []seenID // in the order in which they came; a forgotten one keeps its place
	head int      // where the line begins
}

type eventID [32]byte

type seenID struct {
	id eventID
	at time.Time
}

func newSeenSet(keep time.Duration, most int) seenSet {
	return seenSet{keep: keep, most: most, at: map[eventID]time.Time{}}
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

// full reports whether there is no room for another one.
func (s *seenSet) full() bool { return len(s.line)-s.head >= s.most }

// add remembers the id, for which there is room.
func (s *seenSet) add(id eventID, now time.Time) {
	s.at[id] = now
	s.line = append(s.line, seenID{id, now})
}

// remove forgets the id.
func (s *seenSet) remove(id eventID) {
	delete(s.at, id)
	// The usual case is the one that came last. Its place is free at once, or
	// somebody who is refused all the time would fill the line.
	if last := len(s.line) - 1; last >= s.head && s.line[last].id == id {
		s.line = s.line[:last]
	}
}

func (s *seenSet) expire(now time.Time) {
	for s.head < len(s.line) && now.Sub(s.line[s.head].at) >= s.keep {
		if first := s.line[s.head]; s.at[first.id].Equal(first.at) {
			delete(s.at, first.id)
		}
		s.head++
	}
	if s.head > s.most/2 && s.head > len(s.line)/2 {
		s.line = append([]seenID(nil), s.line[s.head:]...)
		s.head = 0
	}
}
