package jetstream

import (
	"maps"
	"slices"
	"time"
)

// roster is when each member was last heard of. It is not safe for use by several
// goroutines.
type roster map[string]heard

type heard struct {
	revision uint64
	at       time.Time
}

// see compares the members that are there now with what is known.
func (r roster) see(members map[string]memberRecord, now time.Time) {
	maps.DeleteFunc(r, func(id string, _ heard) bool { _, ok := members[id]; return !ok })
	for id, m := range members {
		if r[id].revision != m.revision {
			r[id] = heard{m.revision, now}
		}
	}
}

// restart lets everybody's silence begin now.
func (r roster) restart(now time.Time) {
	for id, h := range r {
		r[id] = heard{h.revision, now}
	}
}

// silent returns who was not heard of for so long, in order.
func (r roster) silent(now time.Time, d time.Duration) (ids []string) {
	for id, h := range r {
		if now.Sub(h.at) >= d {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
