package nostr

import (
	"cmp"
	"time"

	"github.com/tideover/tideover/retry"
)

// answered takes the relay's answer to an event. It reports whether the relay wants
// to know who we are; then the event waits for [outbox.release] or
// [outbox.refuse].
func (o *outbox) answered(m *Message, now time.Time) (wantsAuth bool) {
	it := o.head(m.ID)
	if it == nil {
		return false // of progress that was dropped meanwhile
	}
	o.unanswered = 0
	if !m.OK {
		it.answer = cmp.Or(printable(m.Text), "refused without a reason")
	}
	switch prefix := m.Prefix(); {
	case m.OK || prefix == prefixDuplicate:
		o.acknowledge(it)
	case prefix == prefixAuth:
		o.inFlight, o.held = false, true
		return true
	case prefix == prefixRate:
		o.throttled(it, m.Text, now)
	case prefix == prefixError:
		o.failed(it, m.Text, now)
	case isRefusal(prefix):
		o.refuse(it, m.Text)
	default:
		o.unclear(it, m.Text, now)
	}
	return false
}

// head returns the first of the queue if it is the one of the id and was sent. An
// answer that comes after the time for it is one all the same.
func (o *outbox) head(id string) *item {
	if len(o.queue) > 0 && o.queue[0].id == id && !o.queue[0].sent.IsZero() {
		return o.queue[0]
	}
	return nil
}

// failed handles an answer that says that something went wrong. It may be the
// event: were it tried for ever, it would keep everything behind it from the relay.
func (o *outbox) failed(it *item, text string, now time.Time) {
	if it.errors++; it.errors >= maxErrors {
		o.refuse(it, text)
		return
	}
	o.again(text, now, retry.ClassTransient)
}

// throttled handles an answer that says that we are too fast. That is about us and
// not about the event, unless it stays so however long we wait.
func (o *outbox) throttled(it *item, text string, now time.Time) {
	if it.throttled == 0 {
		it.slowed = now
	}
	if it.throttled++; it.throttled >= maxErrors && now.Sub(it.slowed) >= maxThrottled {
		o.refuse(it, text)
		return
	}
	o.again(text, now, retry.ClassThrottled)
}

// unclear handles an answer that does not say why. It may be an error that passes.
func (o *outbox) unclear(it *item, text string, now time.Time) {
	if it.unclear++; it.unclear >= maxUnclear {
		o.refuse(it, text)
		return
	}
	o.again(text, now, retry.ClassTransient)
}

func (o *outbox) acknowledge(it *item) {
	o.counts.acknowledged++
	o.acks.add(it.id)
	o.settle(it, Acknowledged, nil)
}

func (o *outbox) refuse(it *item, text string) {
	o.counts.refused++
	o.settle(it, Refused, &RefusedError{ID: it.id, Text: cmp.Or(printable(text), it.answer)})
}

// settle removes what the relay has decided about; the next may go at once. What
// is dropped without an answer leaves the wait that the relay asked for.
func (o *outbox) settle(it *item, s State, err error) {
	o.remove(it, s, err)
	o.at = time.Time{}
	o.pace.reset()
}

// release lets the first of the queue be sent again at once.
func (o *outbox) release() {
	if o.held {
		o.held, o.at = false, time.Time{}
	}
}

// The words for programs that answers of relays begin with.
const (
	prefixDuplicate = "duplicate"
	prefixAuth      = "auth-required"
	prefixRate      = "rate-limited"
	prefixError     = "error"
)

// isRefusal reports whether the word says that asking again is of no use.
func isRefusal(prefix string) bool {
	switch prefix {
	case "restricted", "blocked", "invalid", "pow", "mute", "unsupported", "payment-required":
		return true
	}
	return false
}

// ring remembers the last ids.
type ring struct {
	ids  []string
	next int
	set  map[string]bool
}

func newRing(size int) ring { return ring{ids: make([]string, size), set: map[string]bool{}} }

func (r *ring) has(id string) bool { return r.set[id] }

func (r *ring) add(id string) {
	if r.set[id] {
		return
	}
	delete(r.set, r.ids[r.next])
	r.ids[r.next] = id
	r.set[id] = true
	r.next = (r.next + 1) % len(r.ids)
}
