package nostr

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// standing is a subscription as the caller asked for it.
type standing struct {
	id      string // on the wire: another one each time, so that late events of the old one are not taken for bad ones of the new
	name    string
	filters []Filter
	from    int64 // nothing older is wanted
}

func newStanding(number int, name string, since time.Time, filters []Filter) *standing {
	s := &standing{id: wireID(number, name), name: name, filters: slices.Clone(filters)}
	if !since.IsZero() {
		s.from = max(since.Unix(), 0)
	}
	for i := range s.filters {
		s.filters[i].Since = max(s.filters[i].Since, s.from)
	}
	return s
}

// wireID returns a name of at most 64 bytes, which is what relays take.
func wireID(number int, name string) string {
	return fmt.Sprintf("%d:%s", number, strings.ToValidUTF8(name[:min(len(name), 40)], ""))
}

type subPhase uint8

const (
	subDue     subPhase = iota // to be sent, not before at
	subHeld                    // until the relay knows who we are
	subOpen                    // sent
	subClosing                 // to be ended
)

// subscription is a standing subscription, or a question, on one relay. It does
// not know the time, and sends nothing by itself.
type subscription struct {
	*standing
	answer  *answer // for a question: where the events go
	overlap time.Duration
	every   time.Duration // between sweeps
	pace    pace

	phase subPhase
	at    time.Time // due: not before

	asked   time.Time // when it was sent last
	whole   bool      // it was sent for everything since swept, not only since contact
	stored  bool      // and all stored events have come since
	contact time.Time // until then nothing was missed, if the relay does not lose anything
	swept   time.Time // until then nothing was missed even if it does

	trouble string // why the relay does not serve it
	refused bool   // and asking again soon is of no use
}

// matches reports whether the relay may send the event. Filters are those of the
// caller: a relay that ignores how since has moved on does no harm.
func (s *subscription) matches(e *Event) bool {
	return slices.ContainsFunc(s.filters, func(f Filter) bool { return f.Matches(e) })
}

// due returns the message to send now, or else when to ask again; zero means when
// something has happened.
func (s *subscription) due(now time.Time) (m *Message, next time.Time) {
	switch {
	case s.phase == subClosing:
		return &Message{Type: TypeClose, Sub: s.id}, time.Time{}
	case s.phase == subDue && now.Before(s.at):
		return nil, s.at
	case s.phase == subDue:
		return s.request(now), time.Time{}
	case s.phase == subOpen && s.answer == nil:
		if now.Before(s.sweepAt()) {
			return nil, s.sweepAt()
		}
		s.pause(now)
		return s.request(now), time.Time{}
	}
	return nil, time.Time{}
}

// sweepAt returns when the relay is asked again for what it may have forgotten to
// push. One that does not say that it has sent everything is asked as often.
func (s *subscription) sweepAt() time.Time {
	if s.stored {
		return s.swept.Add(s.every)
	}
	return s.asked.Add(s.every)
}

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

// since returns from when events are asked for. What came before contact was
// pushed, but for the overlap: clocks differ, and relays push late. A sweep goes
// back to the sweep before it.
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

// eose notes that all stored events have come. It reports whether that is news.
func (s *subscription) eose() bool {
	if s.phase != subOpen || s.stored {
		return false
	}
	s.stored, s.trouble, s.refused = true, "", false
	if s.whole {
		s.swept = s.asked
	}
	return true
}

// pause notes that until now events were pushed.
func (s *subscription) pause(now time.Time) {
	if s.stored {
		s.stored, s.contact = false, now
	}
}

// closed takes the relay's end of the subscription. It reports whether the relay
// wants to know who we are; then the subscription waits for release or refuse.
func (s *subscription) closed(m *Message, now time.Time) (wantsAuth bool) {
	s.pause(now)
	prefix := m.Prefix()
	switch {
	case prefix == prefixAuth:
		s.phase = subHeld
		return true
	case isRefusal(prefix):
		s.refuse(m.Text, now)
	case prefix == prefixRate:
		s.again(m.Text, now, retry.ClassThrottled)
	default:
		s.again(m.Text, now, retry.ClassTransient)
	}
	return false
}

func (s *subscription) again(text string, now time.Time, class retry.Class) {
	s.phase, s.at = subDue, now.Add(s.pace.wait(now.Sub(s.asked), class))
	s.trouble, s.refused = printable(text), false
}

func (s *subscription) refuse(text string, now time.Time) {
	s.phase, s.at = subDue, now.Add(leaveAlone)
	s.trouble, s.refused = printable(text), true
}

// release lets a subscription that was held be sent at once.
func (s *subscription) release() {
	if s.phase == subHeld {
		s.phase, s.at = subDue, time.Time{}
	}
}

// moveOn takes everything until then for seen, also if the relay has not said that
// it has sent all of it.
func (s *subscription) moveOn(contact time.Time) {
	if s.phase == subOpen {
		s.stored, s.contact, s.swept = false, contact, contact
	}
}

// linkLost makes it due on the next link. The relay may be asked at once then,
// unless it said that it does not want to be.
func (s *subscription) linkLost(contact time.Time) {
	s.pause(contact)
	if s.phase != subDue {
		s.phase, s.at = subDue, time.Time{}
	}
}
