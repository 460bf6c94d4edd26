package jetstream

import (
	"maps"
	"slices"
	"time"
)

// silence is when the last heartbeat of each member was seen. It is not safe for use
// by several goroutines.
type silence map[string]heard

type heard struct {
	revision uint64
	at       time.Time
}

// update compares the records of the members with those seen before.
func (s silence) update(members map[string]memberRecord, now time.Time) {
	maps.DeleteFunc(s, func(id string, _ heard) bool { _, ok := members[id]; return !ok })
	for id, m := range members {
		if s[id].revision != m.revision {
			s[id] = heard{m.revision, now}
		}
	}
}

// restart counts the silence of every member from now.
func (s silence) restart(now time.Time) {
	for id, h := range s {
		s[id] = heard{h.revision, now}
	}
}

// longerThan returns the members without a heartbeat for so long, in order.
func (s silence) longerThan(now time.Time, d time.Duration) (ids []string) {
	for id, h := range s {
		if now.Sub(h.at) >= d {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
