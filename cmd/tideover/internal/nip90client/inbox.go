package nip90client

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/recentset"
	"github.com/tideover/tideover/nostr"
)

// ReorderDelay is how long events are held back, so that they are passed on in the order of
// their times. Several relays deliver out of order, and stored events come newest first.
const ReorderDelay = 250 * time.Millisecond

// The limits of an inbox.
const (
	maxWaiting = 1_000 // events that Take has not returned yet
	maxResults = 100   // further places, for results only

	// maxBytes limits the memory of waiting events. Events that Take has returned, and that are
	// not printed yet because the reader is slow, may need as much again.
	maxBytes = 8 << 20
)

// Inbox collects events from several relays, and returns each only once. It is safe for
// concurrent use.
type Inbox struct {
	filters []nostr.Filter
	arrived chan struct{} // has a value when waiting is not empty
	room    int           // places for events that Take has not returned yet
	results int           // further places, for results only
	bytes   int           // memory limit for all of them; a quarter is reserved for results

	mu      sync.Mutex
	seen    recentset.Set // ids of events; an event whose id was dropped could be shown twice
	waiting []Entry
	size    int // bytes of waiting
	missed  int // events that were dropped since the last Take
}

// NewInbox returns an inbox for events that pass one of the filters.
func NewInbox(filters ...nostr.Filter) *Inbox {
	return &Inbox{
		filters: filters, arrived: make(chan struct{}, 1), room: maxWaiting, results: maxResults, bytes: maxBytes,
		seen: recentset.New(maxRecent),
	}
}

// Arrived returns a channel that has a value when events are waiting for [Inbox.Take].
func (b *Inbox) Arrived() <-chan struct{} { return b.arrived }

// Put adds an event whose form and id are already checked. It checks the signature, and returns
// an error if the event is forged. It ignores an event that no filter matches, that is a duplicate,
// or that is not an event of NIP-90: that is not the fault of the relay. Only verified events are
// recorded as seen, so that a forged event can't replace a genuine event.
func (b *Inbox) Put(e *nostr.Event) error {
	if !slices.ContainsFunc(b.filters, func(f nostr.Filter) bool { return f.Matches(e) }) || b.known(e.ID) {
		return nil
	}
	if err := e.CheckSignature(); err != nil {
		return err
	}
	if x, ok := Read(e); ok {
		b.add(x)
	}
	return nil
}

func (b *Inbox) known(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen.Has(id)
}

func (b *Inbox) add(x Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen.Has(x.ID) {
		return
	}
	if !b.fits(&x) {
		b.missed++ // not marked as seen: a relay may send it again
		return
	}
	b.seen.Add(x.ID)
	b.waiting, b.size = append(b.waiting, x), b.size+x.size()
	select {
	case b.arrived <- struct{}{}:
	default:
	}
}

// fits reports whether the inbox has room for an entry.
func (b *Inbox) fits(x *Entry) bool {
	count, bytes := b.room, b.bytes*3/4
	if x.Type == TypeResult {
		count, bytes = b.room+b.results, b.bytes
	}
	return len(b.waiting) < count && b.size+x.size() <= bytes
}

// maxRecent is how many ids of events are remembered.
const maxRecent = 10_000

// Take returns the waiting events in the order of their times, and the number of events that
// were dropped because the inbox was full.
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

// rank orders entries of the same second by their type.
func rank(x Entry) int {
	return slices.Index([]string{TypeOffer, TypeRequest, TypeCancel, TypeFeedback, TypeResult}, x.Type)
}

func retries(x Entry) int {
	if x.Retry == nil {
		return 0
	}
	return x.Retry.Number
}
