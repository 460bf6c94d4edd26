package nostrtest

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/tideover/tideover/nostr"
)

const kindDeletion = 5

// store stores the events that arrived last.
type store struct {
	limit   int
	events  []*nostr.Event // in order of arrival
	known   map[string]int // how often an id is stored: more than once if forged events were injected
	deleted map[deletion]struct{}
}

// deletion is the request of an author to delete one of their events.
type deletion struct{ author, id string }

func newStore(limit int) *store {
	return &store{limit: limit, known: map[string]int{}, deleted: map[deletion]struct{}{}}
}

func (s *store) has(id string) bool { return s.known[id] > 0 }

// isDeleted reports whether the event was deleted before.
func (s *store) isDeleted(e *nostr.Event) bool {
	_, ok := s.deleted[deletion{e.PubKey, e.ID}]
	return ok && e.Kind != kindDeletion
}

// add stores an event, and drops the oldest if the store is full.
func (s *store) add(e *nostr.Event) {
	if isEphemeral(e) {
		return
	}
	if i := s.replaceable(e); i >= 0 {
		old := s.events[i]
		if old.CreatedAt > e.CreatedAt || old.CreatedAt == e.CreatedAt && old.ID <= e.ID {
			return
		}
		s.removeIndex(old)
		s.events = slices.Delete(s.events, i, i+1)
	}
	if len(s.events) >= s.limit {
		s.removeIndex(s.events[0])
		s.events = s.events[1:]
	}
	s.events = append(s.events, e)
	s.known[e.ID]++
}

func isEphemeral(e *nostr.Event) bool { return e.Kind >= 20000 && e.Kind < 30000 }

// replaceable returns the index of the event that this one replaces, with the
// same kind, author and identifier; -1 if there is none.
func (s *store) replaceable(e *nostr.Event) int {
	if e.Kind < 30000 || e.Kind >= 40000 {
		return -1
	}
	return slices.IndexFunc(s.events, func(old *nostr.Event) bool {
		return old.Kind == e.Kind && old.PubKey == e.PubKey && old.Tags.Find("d").Value() == e.Tags.Find("d").Value()
	})
}

// applyDeletion removes the events that a deletion names, if they have the same
// author. Deletions cannot be deleted.
func (s *store) applyDeletion(e *nostr.Event) {
	if e.Kind != kindDeletion {
		return
	}
	for _, id := range named(e) {
		s.deleted[id] = struct{}{}
	}
	s.events = slices.DeleteFunc(s.events, func(old *nostr.Event) bool {
		if !s.isDeleted(old) {
			return false
		}
		s.removeIndex(old)
		return true
	})
}

func named(e *nostr.Event) (list []deletion) {
	for _, t := range e.Tags.All("e") {
		list = append(list, deletion{e.PubKey, t.Value()})
	}
	return list
}

// removeIndex removes the index entries of an event that is no longer stored.
func (s *store) removeIndex(e *nostr.Event) {
	if s.known[e.ID]--; s.known[e.ID] == 0 {
		delete(s.known, e.ID)
	}
	if e.Kind == kindDeletion {
		for _, id := range named(e) {
			delete(s.deleted, id)
		}
	}
}

// find returns the events that match one of the filters, the newest first. Each
// filter has its own limit.
func (s *store) find(filters []nostr.Filter) []*nostr.Event {
	newest := slices.SortedStableFunc(slices.Values(s.events), func(a, b *nostr.Event) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	found := make([]int, len(filters))
	return slices.DeleteFunc(newest, func(e *nostr.Event) bool {
		wanted := false
		for i := range filters {
			f := &filters[i]
			if (f.Limit <= 0 || found[i] < f.Limit) && f.Matches(e) {
				found[i]++
				wanted = true
			}
		}
		return !wanted
	})
}

// shuffle orders events by the seed.
func shuffle(events []*nostr.Event, seed uint64) {
	r := rand.New(rand.NewPCG(seed, uint64(len(events))))
	r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
}
