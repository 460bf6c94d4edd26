package nostr

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/internal/recentset"
	"github.com/tideover/tideover/retry"
)

// Errors of a [Receipt]: why an event was dropped for a relay.
var (
	ErrFull    = errors.New("the outbox is full")
	ErrStale   = errors.New("waited too long in the outbox")
	ErrStopped = errors.New("the client has stopped")
)

// Class says what an outbox does with an event that cannot be sent in time.
type Class uint8

// The classes.
const (
	Progress Class = iota // may be dropped, the oldest first: later progress replaces it
	Refusal               // may be dropped after all progress: it is about a job that is not done
	Result                // is kept until the relay has acknowledged or refused it
)

const (
	maxProgressAge = 5 * time.Minute // after that, progress and refusals are dropped
	maxBytes       = 32 << 20        // total size of the events that wait for a relay
	maxAcks        = 1024            // ids of acknowledged events that are kept, so that these are not sent again
	maxUnanswered  = 3               // this many events in a row without an answer end the link
	maxUnclear     = 5               // after this many negative answers without a reason an event counts as refused
	maxErrors      = 10              // the same for answers that say "error", or "rate-limited" for at least maxThrottled
	maxThrottled   = time.Hour
)

// outbox is the queue of events that a relay has not acknowledged yet, in
// order. It sends one event at a time: if a second one were in flight when the
// relay answers "rate-limited" to the first, the relay would get them in the
// wrong order, and a subscriber would see the end of a job before its progress.
// One event per round trip is more than a relay accepts from one author.
//
// It reads no clock, and sends nothing itself.
type outbox struct {
	limit   int
	timeout time.Duration // how long the relay may take to answer
	pace    pace

	queue []*item
	byID  map[string]*item
	acks  recentset.Set

	inFlight   bool      // the first event was sent on this link and not answered
	held       bool      // the first event waits for authentication
	at         time.Time // when the first event was sent, or may be sent
	unanswered int       // number of events in a row without an answer, on this link
	trouble    string    // why the first event is sent again
	counts     outboxCounts
}

type outboxCounts struct{ acknowledged, refused, dropped int }

func newOutbox(limit int, timeout time.Duration, p pace) outbox {
	return outbox{limit: limit, timeout: timeout, pace: p, byID: map[string]*item{}, acks: recentset.New(maxAcks)}
}

// add adds events to the queue, all or none, and returns their items. An event
// that is already in the queue, or that the relay has, is not added again.
func (o *outbox) add(class Class, encoded []encodedEvent, now time.Time) ([]*item, error) {
	o.expire(now)
	items := make([]*item, len(encoded))
	var fresh []*item
	for i, l := range encoded {
		switch known := o.byID[l.id]; {
		case known != nil:
			items[i] = known
		case o.acks.Has(l.id):
			items[i] = newItem(l, class, now)
			items[i].decide(Acknowledged, nil)
		default:
			items[i] = newItem(l, class, now)
			fresh = append(fresh, items[i])
			o.byID[l.id] = items[i] // a batch may name an event twice
		}
	}
	if !o.makeRoom(fresh) {
		for _, it := range fresh {
			delete(o.byID, it.id)
		}
		return nil, ErrFull
	}
	for _, it := range items {
		it.class = max(it.class, class) // one that was queued with a lower class gets the higher one
	}
	o.enqueue(items)
	return items, nil
}

// enqueue adds the new events of a batch to the queue. A new event goes before the
// queued events that follow it in the batch, otherwise to the end: progress that was
// dropped and is published again together with the end of its job must not arrive
// after that end. An event that was already sent keeps its place.
func (o *outbox) enqueue(batch []*item) {
	at, first := len(o.queue), 0
	if len(o.queue) > 0 && !o.queue[0].sent.IsZero() {
		first = 1
	}
	for _, it := range slices.Backward(batch) {
		i := slices.Index(o.queue, it)
		switch {
		case i >= 0:
			at = max(min(at, i), first)
		case o.byID[it.id] == it:
			o.queue = slices.Insert(o.queue, at, it)
		}
	}
}

// makeRoom drops old progress, and then refusals, until there is room for the fresh
// events. If dropping cannot make enough room, it drops nothing and returns false.
func (o *outbox) makeRoom(fresh []*item) bool {
	count, size := len(o.queue)+len(fresh), totalBytes(o.queue)+totalBytes(fresh)
	var old []*item
	for _, class := range []Class{Progress, Refusal} {
		for i, it := range o.queue {
			if count <= o.limit && size <= maxBytes {
				break
			}
			if it.class == class && !(i == 0 && o.inFlight) {
				old = append(old, it)
				count, size = count-1, size-len(it.frame)
			}
		}
	}
	if count > o.limit || size > maxBytes {
		o.counts.dropped += len(fresh)
		return false
	}
	for _, it := range old {
		o.drop(it, ErrFull)
	}
	return true
}

// totalBytes returns the size of the events.
func totalBytes(items []*item) (n int) {
	for _, it := range items {
		n += len(it.frame)
	}
	return n
}

// expire drops progress and refusals that are too old, except the event in
// flight, whose answer will come soon.
func (o *outbox) expire(now time.Time) {
	for it := o.oldest(); it != nil && now.Sub(it.added) >= maxProgressAge; it = o.oldest() {
		o.drop(it, ErrStale)
	}
}

// nextExpiry returns when the next event expires; zero means never.
func (o *outbox) nextExpiry() time.Time {
	if it := o.oldest(); it != nil {
		return it.added.Add(maxProgressAge)
	}
	return time.Time{}
}

// oldest returns the event that expires first; nil if none does.
func (o *outbox) oldest() (oldest *item) {
	for i, it := range o.queue {
		if it.class < Result && !(i == 0 && o.inFlight) && (oldest == nil || it.added.Before(oldest.added)) {
			oldest = it
		}
	}
	return oldest
}

func (o *outbox) drop(it *item, why error) {
	o.counts.dropped++
	o.remove(it, Dropped, why)
}

func (o *outbox) remove(it *item, s State, err error) {
	i := slices.Index(o.queue, it)
	if i == 0 {
		o.inFlight, o.held, o.trouble = false, false, ""
	}
	o.queue = slices.Delete(o.queue, i, i+1)
	delete(o.byID, it.id)
	it.decide(s, err)
}

// due returns the event to send now, or else when to call it again; a zero time
// means after the next change. An error ends the link.
func (o *outbox) due(now time.Time) (frame []byte, next time.Time, err error) {
	o.expire(now)
	if len(o.queue) == 0 {
		return nil, time.Time{}, nil
	}
	if o.inFlight && now.Sub(o.at) >= o.timeout {
		if err := o.handleTimeout(now); err != nil {
			return nil, time.Time{}, err
		}
	}
	switch {
	case o.held:
		return nil, o.nextExpiry(), nil
	case o.inFlight:
		return nil, earlier(o.at.Add(o.timeout), o.nextExpiry()), nil
	case now.Before(o.at):
		return nil, earlier(o.at, o.nextExpiry()), nil
	}
	o.inFlight, o.at = true, now
	o.queue[0].sent = now
	return o.queue[0].frame, now.Add(o.timeout), nil
}

// handleTimeout sends an unanswered event again. After several timeouts in a row it
// returns an error, which ends the link.
func (o *outbox) handleTimeout(now time.Time) error {
	o.unanswered++
	if o.unanswered >= maxUnanswered {
		return fmt.Errorf("no answer to an event, %d times in a row", o.unanswered)
	}
	o.retryLater("no answer", now, retry.ClassTransient)
	return nil
}

// retryLater sends the first event again after a wait.
func (o *outbox) retryLater(text string, now time.Time, class retry.Class) {
	o.inFlight, o.at = false, now.Add(o.pace.wait(0, class))
	o.trouble = printable(text)
}

// linkLost makes the event in flight due on the next link, because it is unknown
// whether the relay has received it.
func (o *outbox) linkLost() {
	if o.inFlight {
		o.at = time.Time{}
	}
	o.inFlight, o.held, o.unanswered = false, false, 0
}

// stop drops all queued events.
func (o *outbox) stop() {
	for _, it := range slices.Clone(o.queue) {
		o.drop(it, ErrStopped)
	}
}

// last returns the last queued event; nil if there is none.
func (o *outbox) last() *item {
	if len(o.queue) == 0 {
		return nil
	}
	return o.queue[len(o.queue)-1]
}

// earlier returns the earlier of two times that is not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
