package nostr

import (
	"cmp"
	"time"

	"github.com/tideover/tideover/retry"
)

// handleOK handles the relay's answer to an event. It reports whether the relay
// requires authentication; then the event waits for [outbox.release] or
// [outbox.refuse].
func (o *outbox) handleOK(m *Message, now time.Time) (wantsAuth bool) {
	it := o.sentHead(m.ID)
	if it == nil {
		return false // the event was dropped meanwhile
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
		o.handleThrottled(it, m.Text, now)
	case prefix == prefixError:
		o.handleError(it, m.Text, now)
	case isRefusal(prefix):
		o.refuse(it, m.Text)
	default:
		o.handleUnclear(it, m.Text, now)
	}
	return false
}

// sentHead returns the first event if it has this id and was sent. An answer
// after the timeout counts too.
func (o *outbox) sentHead(id string) *item {
	if len(o.queue) > 0 && o.queue[0].id == id && !o.queue[0].sent.IsZero() {
		return o.queue[0]
	}
	return nil
}

// handleError handles an "error" answer. The event may be the cause: if it were
// retried for ever, it would block all events behind it.
func (o *outbox) handleError(it *item, text string, now time.Time) {
	if it.errors++; it.errors >= maxErrors {
		o.refuse(it, text)
		return
	}
	o.retryLater(text, now, retry.ClassTransient)
}

// handleThrottled handles a "rate-limited" answer. It is about our rate and not
// about the event, unless it continues after long waits.
func (o *outbox) handleThrottled(it *item, text string, now time.Time) {
	if it.throttled == 0 {
		it.slowed = now
	}
	if it.throttled++; it.throttled >= maxErrors && now.Sub(it.slowed) >= maxThrottled {
		o.refuse(it, text)
		return
	}
	o.retryLater(text, now, retry.ClassThrottled)
}

// handleUnclear handles a negative answer without a reason. It may be
// temporary.
func (o *outbox) handleUnclear(it *item, text string, now time.Time) {
	if it.unclear++; it.unclear >= maxUnclear {
		o.refuse(it, text)
		return
	}
	o.retryLater(text, now, retry.ClassTransient)
}

func (o *outbox) acknowledge(it *item) {
	o.counts.acknowledged++
	o.acks.add(it.id)
	o.finishItem(it, Acknowledged, nil)
}

func (o *outbox) refuse(it *item, text string) {
	o.counts.refused++
	o.finishItem(it, Refused, &RefusedError{ID: it.id, Text: cmp.Or(printable(text), it.answer)})
}

// finishItem removes an event that the relay has decided about; the next may be
// sent at once. An event that is dropped without an answer does not end the
// relay's wait.
func (o *outbox) finishItem(it *item, s State, err error) {
	o.remove(it, s, err)
	o.at = time.Time{}
	o.pace.reset()
}

// release lets the first event be sent again at once.
func (o *outbox) release() {
	if o.held {
		o.held, o.at = false, time.Time{}
	}
}

// The machine-readable prefixes of relay answers.
const (
	prefixDuplicate = "duplicate"
	prefixAuth      = "auth-required"
	prefixRate      = "rate-limited"
	prefixError     = "error"
)

// isRefusal reports whether the prefix means that a retry is useless.
func isRefusal(prefix string) bool {
	switch prefix {
	case "restricted", "blocked", "invalid", "pow", "mute", "unsupported", "payment-required":
		return true
	}
	return false
}

// idRing stores the last ids.
type idRing struct {
	ids  []string
	next int
	set  map[string]bool
}

func newIDRing(size int) idRing { return idRing{ids: make([]string, size), set: map[string]bool{}} }

func (r *idRing) has(id string) bool { return r.set[id] }

func (r *idRing) add(id string) {
	if r.set[id] {
		return
	}
	delete(r.set, r.ids[r.next])
	r.ids[r.next] = id
	r.set[id] = true
	r.next = (r.next + 1) % len(r.ids)
}
