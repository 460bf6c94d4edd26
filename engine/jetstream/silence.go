package jetstream

import (
	"maps"
	"slices"
	"time"
)

// silence records, for each member, when this process saw its last heartbeat. It is not
// safe for concurrent use.
type silence map[string]heard

type heard struct {
	revision uint64
	at       time.Time
}

// update records that a heartbeat has arrived now from each member whose record has a new
// revision. It removes the members that have left.
func (s silence) update(members map[string]memberRecord, now time.Time) {
	maps.DeleteFunc(s, func(id string, _ heard) bool { _, ok := members[id]; return !ok })
	for id, m := range members {
		if s[id].revision != m.revision {
			s[id] = heard{m.revision, now}
		}
	}
}

// restart makes the silence of every member begin now.
func (s silence) restart(now time.Time) {
	for id, h := range s {
		s[id] = heard{h.revision, now}
	}
}

// longerThan returns the members without a heartbeat for at least d, in order.
func (s silence) longerThan(now time.Time, d time.Duration) (ids []string) {
	for id, h := range s {
		if now.Sub(h.at) >= d {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
