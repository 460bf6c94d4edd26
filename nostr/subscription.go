package nostr

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// subscriptionSpec is a subscription as the caller requested it, for all
// relays.
type subscriptionSpec struct {
	id      string // in messages; a new one for each request, so that late events of the previous one do not count as bad events of the new
	name    string
	filters []Filter
	from    int64 // older events are not requested
}

func newSubscriptionSpec(number int, name string, since time.Time, filters []Filter) *subscriptionSpec {
	s := &subscriptionSpec{id: wireID(number, name), name: name, filters: slices.Clone(filters)}
	if !since.IsZero() {
		s.from = max(since.Unix(), 0)
	}
	for i := range s.filters {
		s.filters[i].Since = max(s.filters[i].Since, s.from)
	}
	return s
}

// wireID returns the id of a subscription in messages: at most 64 bytes, the
// limit of relays.
func wireID(number int, name string) string {
	return fmt.Sprintf("%d:%s", number, strings.ToValidUTF8(name[:min(len(name), 40)], ""))
}

// subPhase is the phase of a subscription at a relay.
type subPhase uint8

const (
	subDue     subPhase = iota // to be sent, but not before the time subscription.at
	subHeld                    // waits for authentication
	subOpen                    // sent
	subClosing                 // to be closed
)

// subscription is a subscription, or a fetch, at one relay. It reads no clock,
// and sends nothing itself.
type subscription struct {
	*subscriptionSpec
	fetch   *fetchResult // for a fetch: where the events go; else nil
	overlap time.Duration
	every   time.Duration // interval between sweeps
	pace    pace

	phase subPhase
	at    time.Time // in the phase subDue, it is not sent before this time

	asked   time.Time // when it was sent last
	whole   bool      // it was sent for everything since swept, not only since contact
	stored  bool      // all stored events have arrived since it was sent
	contact time.Time // no event before this time is missing, if the relay pushes all events
	swept   time.Time // no event before this time is missing, even if the relay does not push all events

	trouble string // why the relay does not serve it
	refused bool   // the relay refused it; it is not sent again soon
}

// matches reports whether the relay may send the event. It uses the caller's
// filters: a relay that sends older events than were requested does no harm.
func (s *subscription) matches(e *Event) bool {
	return slices.ContainsFunc(s.filters, func(f Filter) bool { return f.Matches(e) })
}

// due returns the message to send now, or else when to call it again; a zero
// time means after the next change.
func (s *subscription) due(now time.Time) (m *Message, next time.Time) {
	switch {
	case s.phase == subClosing:
		return &Message{Type: TypeClose, Sub: s.id}, time.Time{}
	case s.phase == subDue && now.Before(s.at):
		return nil, s.at
	case s.phase == subDue:
		return s.request(now), time.Time{}
	case s.phase == subOpen && s.fetch == nil:
		if now.Before(s.sweepAt()) {
			return nil, s.sweepAt()
		}
		s.markInterrupted(now)
		return s.request(now), time.Time{}
	}
	return nil, time.Time{}
}

// sweepAt returns the time of the next sweep, which asks the relay again for events
// that it may not have pushed. It uses the same interval for a relay that never sends
// EOSE.
func (s *subscription) sweepAt() time.Time {
	if s.stored {
		return s.swept.Add(s.every)
	}
	return s.asked.Add(s.every)
}

// request returns the REQ message, and marks the subscription as sent.
func (s *subscription) request(now time.Time) *Message {
	s.whole = s.swept.IsZero() || !now.Before(s.swept.Add(s.every))
	since := s.since()
	filters := slices.Clone(s.filters)
	for i := range filters {
		filters[i].Since = max(filters[i].Since, since)
	}
	s.phase, s.asked = subOpen, now
	return &Message{Type: TypeReq, Sub: s.id, Filters: filters}
}

// since returns the time from which events are requested. The relay has pushed the
// events before contact, or before swept for a sweep. The overlap before that time is
// requested again, because clocks differ and relays push late.
func (s *subscription) since() int64 {
	switch {
	case s.swept.IsZero():
		return s.from
	case s.whole:
		return s.swept.Add(-s.overlap).Unix()
	default:
		return s.contact.Add(-s.overlap).Unix()
	}
}

// markStored records that all stored events have arrived. It returns false if that
// was recorded already.
func (s *subscription) markStored() bool {
	if s.phase != subOpen || s.stored {
		return false
	}
	s.stored, s.trouble, s.refused = true, "", false
	if s.whole {
		s.swept = s.asked
	}
	return true
}

// markInterrupted records that the relay has pushed all events up to now.
func (s *subscription) markInterrupted(now time.Time) {
	if s.stored {
		s.stored, s.contact = false, now
	}
}

// handleClosed handles the end of the subscription by the relay. It reports
// whether the relay requires authentication; then the subscription waits for
// release or refuse.
func (s *subscription) handleClosed(m *Message, now time.Time) (wantsAuth bool) {
	s.markInterrupted(now)
	prefix := m.Prefix()
	switch {
	case prefix == prefixAuth:
		s.phase = subHeld
		return true
	case isRefusal(prefix):
		s.refuse(m.Text, now)
	case prefix == prefixRate:
		s.retryLater(m.Text, now, retry.ClassThrottled)
	default:
		s.retryLater(m.Text, now, retry.ClassTransient)
	}
	return false
}

// retryLater sends the subscription again after a wait.
func (s *subscription) retryLater(text string, now time.Time, class retry.Class) {
	s.phase, s.at = subDue, now.Add(s.pace.wait(now.Sub(s.asked), class))
	s.trouble, s.refused = printable(text), false
}

// refuse records that the relay refuses the subscription, which is then sent again
// only after the quarantine.
func (s *subscription) refuse(text string, now time.Time) {
	s.phase, s.at = subDue, now.Add(quarantine)
	s.trouble, s.refused = printable(text), true
}

// release lets a subscription that was held be sent at once.
func (s *subscription) release() {
	if s.phase == subHeld {
		s.phase, s.at = subDue, time.Time{}
	}
}

// skipTo treats all events before the time contact as received, even if the relay has
// not sent EOSE.
func (s *subscription) skipTo(contact time.Time) {
	if s.phase == subOpen {
		s.stored, s.contact, s.swept = false, contact, contact
	}
}

// linkLost makes the subscription due on the next link: at once, unless the
// relay asked to wait.
func (s *subscription) linkLost(contact time.Time) {
	s.markInterrupted(contact)
	if s.phase != subDue {
		s.phase, s.at = subDue, time.Time{}
	}
}
