package nostr

import (
	"cmp"
	"slices"
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
	case prefix == prefixRate: // about our rate; about the event only if it continues after long waits
		if it.throttled++; it.throttled == 1 {
			it.slowed = now
		}
		spent := it.throttled >= maxErrors && now.Sub(it.slowed) >= maxThrottled
		o.retryOrRefuse(it, m.Text, now, retry.ClassThrottled, spent)
	case prefix == prefixError: // the event may be the cause, and it must not block the events behind it for ever
		it.errors++
		o.retryOrRefuse(it, m.Text, now, retry.ClassTransient, it.errors >= maxErrors)
	case isRefusal(prefix):
		o.refuse(it, m.Text)
	default: // no reason: it may be temporary
		it.unclear++
		o.retryOrRefuse(it, m.Text, now, retry.ClassTransient, it.unclear >= maxUnclear)
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

// retryOrRefuse sends the event again later, or refuses it if all its retries are
// spent.
func (o *outbox) retryOrRefuse(it *item, text string, now time.Time, class retry.Class, spent bool) {
	if spent {
		o.refuse(it, text)
	} else {
		o.retryLater(text, now, class)
	}
}

func (o *outbox) acknowledge(it *item) {
	o.counts.acknowledged++
	o.acks.Add(it.id)
	o.finishItem(it, Acknowledged, nil)
}

func (o *outbox) refuse(it *item, text string) {
	o.counts.refused++
	o.finishItem(it, Refused, &RefusedError{ID: it.id, Text: cmp.Or(printable(text), it.answer)})
}

// finishItem removes an event that the relay has acknowledged or refused. The next
// event may be sent at once. Do not use it for an event that is dropped without an
// answer of the relay: then the wait after the last failure still applies.
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
	refusals := []string{"restricted", "blocked", "invalid", "pow", "mute", "unsupported", "payment-required"}
	return slices.Contains(refusals, prefix)
}
