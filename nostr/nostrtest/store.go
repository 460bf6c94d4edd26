package nostrtest

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/tideover/tideover/nostr"
)

const kindDeletion = 5

// store keeps events, the newest arrivals of them.
type store struct {
	limit   int
	events  []*nostr.Event // in order of arrival
	known   map[string]int // how often an id is there: more than once if forged ones were injected
	deleted map[deletion]struct{}
}

// deletion is the wish of an author that an event of theirs be gone.
type deletion struct{ author, id string }

func newStore(limit int) *store {
	return &store{limit: limit, known: map[string]int{}, deleted: map[deletion]struct{}{}}
}

func (s *store) has(id string) bool { return s.known[id] > 0 }

// gone reports whether the event was deleted before.
func (s *store) gone(e *nostr.Event) bool {
	_, ok := s.deleted[deletion{e.PubKey, e.ID}]
	return ok && e.Kind != kindDeletion
}

// add keeps an event, at the cost of the oldest if there is no room.
func (s *store) add(e *nostr.Event) {
	if isEphemeral(e) {
		return
	}
	if i := s.replaceable(e); i >= 0 {
		old := s.events[i]
		if old.CreatedAt > e.CreatedAt || old.CreatedAt == e.CreatedAt && old.ID <= e.ID {
			return
		}
		s.forget(old)
		s.events = slices.Delete(s.events, i, i+1)
	}
	if len(s.events) >= s.limit {
		s.forget(s.events[0])
		s.events = s.events[1:]
	}
	s.events = append(s.events, e)
	s.known[e.ID]++
}

func isEphemeral(e *nostr.Event) bool { return e.Kind >= 20000 && e.Kind < 30000 }

// replaceable returns where the event is that this one takes the place of, -1 if there
// is none: that of the same kind, author and identifier.
func (s *store) replaceable(e *nostr.Event) int {
	if e.Kind < 30000 || e.Kind >= 40000 {
		return -1
	}
	return slices.IndexFunc(s.events, func(old *nostr.Event) bool {
		return old.Kind == e.Kind && old.PubKey == e.PubKey && old.Tags.Find("d").Value() == e.Tags.Find("d").Value()
	})
}

// obey removes what the event names, if it is a deletion, of the same author.
// Deletions can't be deleted.
func (s *store) obey(e *nostr.Event) {
	if e.Kind != kindDeletion {
		return
	}
	for _, id := range named(e) {
		s.deleted[id] = struct{}{}
	}
	s.events = slices.DeleteFunc(s.events, func(old *nostr.Event) bool {
		if !s.gone(old) {
			return false
		}
		s.forget(old)
		return true
	})
}

func named(e *nostr.Event) (list []deletion) {
	for _, t := range e.Tags.All("e") {
		list = append(list, deletion{e.PubKey, t.Value()})
	}
	return list
}

// forget removes what is known of an event that is no longer kept.
func (s *store) forget(e *nostr.Event) {
	if s.known[e.ID]--; s.known[e.ID] == 0 {
		delete(s.known, e.ID)
	}
	if e.Kind == kindDeletion {
		for _, id := range named(e) {
			delete(s.deleted, id)
		}
	}
}

// find returns the events that one of the filters wants, the newest first. Each
// filter's limit is its own.
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

// shuffle brings events into an order that the seed decides.
func shuffle(events []*nostr.Event, seed uint64) {
	r := rand.New(rand.NewPCG(seed, uint64(len(events))))
	r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
}
