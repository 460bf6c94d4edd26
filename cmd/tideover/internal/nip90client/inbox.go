package nip90client

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/nostr"
)

// Settle is how long events are held, so that those which come over several relays,
// or newest first as stored ones do, are passed on in the order of their times.
const Settle = 250 * time.Millisecond

// The bounds of an inbox.
const (
	maxSeen    = 10_000 // events that are remembered
	maxWaiting = 1_000  // events that nobody has taken
	maxResults = 100    // results beyond that

	// maxBytes bounds the memory of what waits. What was taken, and can't be shown
	// because nobody reads it, may have as much again.
	maxBytes = 8 << 20
)

// Inbox takes events from several relays, and gives each out once. It is safe for
// use by several goroutines.
type Inbox struct {
	filters []nostr.Filter
	arrived chan struct{} // holds one: something is there
	room    int           // for events that nobody has taken
	results int           // for results besides: they matter most
	bytes   int           // for all of it; a quarter is left to results

	mu      sync.Mutex
	seen    map[string]bool
	order   []string // of seen, the oldest first
	waiting []Entry
	size    int // of waiting
	missed  int
}

// NewInbox returns an inbox for events that pass one of the filters.
func NewInbox(filters ...nostr.Filter) *Inbox {
	return &Inbox{
		filters: filters, arrived: make(chan struct{}, 1), room: maxWaiting, results: maxResults, bytes: maxBytes, seen: map[string]bool{},
	}
}

// Arrived returns a channel that has a value when there is something to take.
func (b *Inbox) Arrived() <-chan struct{} { return b.arrived }

// Put takes an event whose shape and id are checked; it checks the signature, and an
// error means that it is forged. What is signed, and just no use, anybody could have
// published: that is not the fault of the relay that sent it. An event is remembered
// only when it is verified, so that a forged one can't take the place of a true one.
func (b *Inbox) Put(e *nostr.Event) error {
	if !slices.ContainsFunc(b.filters, func(f nostr.Filter) bool { return f.Matches(e) }) || b.known(e.ID) {
		return nil
	}
	if err := e.CheckSignature(); err != nil {
		return err
	}
	if x, ok := Read(e); ok {
		b.keep(x)
	}
	return nil
}

func (b *Inbox) known(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[id]
}

func (b *Inbox) keep(x Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen[x.ID] {
		return
	}
	if !b.fits(&x) {
		b.missed++ // it is not remembered, and may come again
		return
	}
	b.remember(x.ID)
	b.waiting, b.size = append(b.waiting, x), b.size+x.size()
	select {
	case b.arrived <- struct{}{}:
	default:
	}
}

// fits reports whether there is room for an entry.
func (b *Inbox) fits(x *Entry) bool {
	count, bytes := b.room, b.bytes*3/4
	if x.Type == TypeResult {
		count, bytes = b.room+b.results, b.bytes
	}
	return len(b.waiting) < count && b.size+x.size() <= bytes
}

// remember forgets the oldest ids. What is forgotten could at worst be shown twice.
func (b *Inbox) remember(id string) {
	if len(b.order) >= maxSeen {
		delete(b.seen, b.order[0])
		b.order = b.order[1:]
	}
	b.seen[id] = true
	b.order = append(b.order, id)
}

// Take returns what has come, in the order of its times, and how many there was no
// room for.
func (b *Inbox) Take() (list []Entry, missed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list, missed = b.waiting, b.missed
	b.waiting, b.size, b.missed = nil, 0, 0
	slices.SortStableFunc(list, func(x, y Entry) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(rank(x), rank(y)), cmp.Compare(retries(x), retries(y)))
	})
	return list, missed
}

// rank orders what happened in the same second.
func rank(x Entry) int {
	return slices.Index([]string{TypeOffer, TypeRequest, TypeCancel, TypeFeedback, TypeResult}, x.Type)
}

func retries(x Entry) int {
	if x.Retry == nil {
		return 0
	}
	return x.Retry.Number
}
