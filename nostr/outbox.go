package nostr

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/retry"
)

// Why an event is not, or not known to be, on a relay.
var (
	ErrFull    = errors.New("the outbox is full")
	ErrStale   = errors.New("waited too long in the outbox")
	ErrStopped = errors.New("the client has stopped")
)

// Class says what an outbox does with an event that can't be sent in time.
type Class uint8

// The classes.
const (
	Progress Class = iota // may be dropped, the oldest first: what it says is soon said better
	Refusal               // the same, but after all progress: it is about work that nobody does
	Result                // is kept until the relay has it or has refused it
)

const (
	keepProgress  = 5 * time.Minute // after that progress, or a refusal, is no news
	maxBytes      = 32 << 20        // of all events that wait for a relay
	rememberAcks  = 1024            // events on the relay, by which a repetition is known
	maxUnanswered = 3               // in a row on one link, before it is not believed any more
	maxUnclear    = 5               // answers to an event that say no and not why
	maxErrors     = 10              // answers to an event that say "error"; or "rate-limited", and for an hour
	maxThrottled  = time.Hour
)

// outbox holds what a relay has not acknowledged yet, in order. It sends one event
// at a time: were a second one on its way when the relay says "rate-limited" to the
// first, the relay would have them in the wrong order, and whoever follows a job
// would see its end before its progress. An event each round trip is more than a
// relay wants from one author.
//
// It does not know the time, and sends nothing by itself.
type outbox struct {
	limit   int
	timeout time.Duration // for an answer
	pace    pace

	queue []*item
	byID  map[string]*item
	acks  ring

	inFlight   bool      // the first of the queue was sent on this link and not answered
	held       bool      // until the relay knows who we are
	at         time.Time // when the first of the queue was sent, or may be sent
	unanswered int       // in a row, on this link
	trouble    string    // why the first of the queue is sent again
	counts     outboxCounts
}

type outboxCounts struct{ acknowledged, refused, dropped int }

func newOutbox(limit int, timeout time.Duration, p pace) outbox {
	return outbox{limit: limit, timeout: timeout, pace: p, byID: map[string]*item{}, acks: newRing(rememberAcks)}
}

// add puts events into the queue, all or none, and returns what became of them.
// An event that is there already, or that the relay has, is not put in again.
func (o *outbox) add(class Class, letters []letter, now time.Time) ([]*item, error) {
	o.expire(now)
	items := make([]*item, len(letters))
	var fresh []*item
	for i, l := range letters {
		switch known := o.byID[l.id]; {
		case known != nil:
			items[i] = known
		case o.acks.has(l.id):
			items[i] = decided(l, Acknowledged, nil)
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
	o.keepAs(class, items)
	o.enqueue(items)
	return items, nil
}

// keepAs raises queued progress that is published again as something better.
func (o *outbox) keepAs(class Class, items []*item) {
	for _, it := range items {
		it.class = max(it.class, class)
	}
}

// enqueue puts the fresh ones of a batch at the end of the queue, or before what
// follows them in the batch and is in the queue already: progress that was dropped
// and is published again with the end of its job should not be news after what came
// later. What was sent keeps its place.
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

// makeRoom drops old progress, and then refusals, if that makes enough room, and
// nothing if not.
func (o *outbox) makeRoom(fresh []*item) bool {
	count, size := len(o.queue)+len(fresh), weight(o.queue)+weight(fresh)
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

// weight returns how many bytes the events are.
func weight(items []*item) (n int) {
	for _, it := range items {
		n += len(it.frame)
	}
	return n
}

// expire drops what is no news any more. What is in flight is not
// dropped: its answer is near.
func (o *outbox) expire(now time.Time) {
	for it := o.oldest(); it != nil && now.Sub(it.added) >= keepProgress; it = o.oldest() {
		o.drop(it, ErrStale)
	}
}

// nextExpiry returns when something will be too old; zero for never.
func (o *outbox) nextExpiry() time.Time {
	if it := o.oldest(); it != nil {
		return it.added.Add(keepProgress)
	}
	return time.Time{}
}

// oldest returns what gets too old first, nil if nothing does.
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

// due returns the event to send now, or else when to ask again; zero means when
// something has happened. An error ends the link.
func (o *outbox) due(now time.Time) (frame []byte, next time.Time, err error) {
	o.expire(now)
	if len(o.queue) == 0 {
		return nil, time.Time{}, nil
	}
	if o.inFlight && now.Sub(o.at) >= o.timeout {
		if err := o.noAnswer(now); err != nil {
			return nil, time.Time{}, err
		}
	}
	switch {
	case o.held:
		return nil, o.nextExpiry(), nil
	case o.inFlight:
		return nil, sooner(o.at.Add(o.timeout), o.nextExpiry()), nil
	case now.Before(o.at):
		return nil, sooner(o.at, o.nextExpiry()), nil
	}
	o.inFlight, o.at = true, now
	o.queue[0].sent = now
	return o.queue[0].frame, now.Add(o.timeout), nil
}

func (o *outbox) noAnswer(now time.Time) error {
	o.unanswered++
	if o.unanswered >= maxUnanswered {
		return fmt.Errorf("no answer to an event, %d times in a row", o.unanswered)
	}
	o.again("no answer", now, retry.ClassTransient)
	return nil
}

// again sends the first of the queue once more, after a wait.
func (o *outbox) again(text string, now time.Time, class retry.Class) {
	o.inFlight, o.at = false, now.Add(o.pace.wait(0, class))
	o.trouble = printable(text)
}

// linkLost forgets what is in flight: it may be on the relay or not, and is sent
// again on the next link.
func (o *outbox) linkLost() {
	if o.inFlight {
		o.at = time.Time{}
	}
	o.inFlight, o.held, o.unanswered = false, false, 0
}

// stop ends the waiting for everything in the queue.
func (o *outbox) stop() {
	for _, it := range slices.Clone(o.queue) {
		o.drop(it, ErrStopped)
	}
}

// last returns the last of the queue, nil if there is none.
func (o *outbox) last() *item {
	if len(o.queue) == 0 {
		return nil
	}
	return o.queue[len(o.queue)-1]
}

// sooner returns the earlier time that is not zero.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
