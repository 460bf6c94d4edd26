package nostrtest

import (
	"crypto/rand"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/nostr"
)

// The limits of a session.
const (
	maxSubs    = 100
	maxSubName = 64

	// maxEvent is less than the largest message, so that an event published in
	// the largest message can also be delivered.
	maxEvent = nostr.MaxFrame - 512
)

// session is the state of one link. The core's lock is held in all its methods
// except ended.
type session struct {
	core   *core
	number int
	subs   map[string][]nostr.Filter
	queue  queue
	wake   chan struct{} // capacity 1: there is something to write, or the session is over
	over   bool

	challenge  string
	challenged bool // the challenge was sent
	known      bool // the client is authenticated

	sent, spoiled int // messages, and malformed ones between them
}

func newSession(c *core, number int) *session {
	return &session{
		core: c, number: number, subs: map[string][]nostr.Filter{}, wake: make(chan struct{}, 1), challenge: rand.Text(),
	}
}

func (s *session) ended() (over bool) {
	s.core.read(func() { over = s.over })
	return over
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// put queues a frame. The queue is bounded: a client that does not read for too
// long is disconnected, as by real relays.
func (s *session) put(f frame) {
	if s.over {
		return
	}
	if s.queue.len() >= s.core.maxQueue {
		s.core.drop(s)
		return
	}
	s.queue.put(f)
	s.signal()
}

// send queues a message, and garbage after some of them.
func (s *session) send(f frame) {
	s.put(f)
	s.sent++
	if every := s.core.faults.GarbageEvery; every > 0 && s.sent%every == 0 {
		s.put(frame{text: garbage(s.spoiled)})
		s.spoiled++
	}
}

func (s *session) sendMessage(m *nostr.Message) { s.send(frame{message: m}) }

func (s *session) notice(text string) {
	s.sendMessage(&nostr.Message{Type: nostr.TypeNotice, Text: text})
}

func (s *session) closed(sub, text string) {
	delete(s.subs, sub)
	s.sendMessage(&nostr.Message{Type: nostr.TypeClosed, Sub: sub, Text: text})
}

// handle handles a message. err is the problem that was found in it, nil if there is
// none.
func (s *session) handle(m *nostr.Message, err error) {
	switch {
	case m == nil:
		s.notice(fmt.Sprint("invalid: ", err))
	case m.Type == nostr.TypeReq:
		s.request(m, err)
	case m.Type == nostr.TypeEvent && m.Event.ID != "":
		s.publish(m.Event, err)
	case m.Type == nostr.TypeAuth && m.Event.ID != "":
		s.authenticate(m.Event, err)
	case err != nil:
		s.notice(fmt.Sprint("invalid: ", err))
	case m.Type == nostr.TypeClose:
		delete(s.subs, m.Sub)
	default:
		s.notice("invalid: the event has no id")
	}
}

// request adds a subscription: it delivers the stored events, and later those
// that are published.
func (s *session) request(m *nostr.Message, err error) {
	f := &s.core.faults
	if n := utf8.RuneCountInString(m.Sub); n < 1 || n > maxSubName {
		s.notice(fmt.Sprintf("invalid: REQ: the subscription's name has %d characters, not 1 to %d", n, maxSubName))
		return
	}
	if why := s.refusal(m, err); why != "" {
		s.closed(m.Sub, why)
		return
	}
	s.subs[m.Sub] = m.Filters
	stored := s.core.store.find(m.Filters)
	if f.Shuffle != 0 {
		shuffle(stored, f.Shuffle)
	}
	for _, e := range stored {
		s.deliver(m.Sub, e)
	}
	if !f.NoEOSE {
		s.sendMessage(&nostr.Message{Type: nostr.TypeEOSE, Sub: m.Sub})
	}
}

// refusal returns why a subscription is refused; empty if it is not.
func (s *session) refusal(m *nostr.Message, err error) string {
	f := &s.core.faults
	_, replaces := s.subs[m.Sub]
	switch {
	case err != nil:
		return fmt.Sprint("invalid: ", err)
	case s.mustAuth():
		return needAuth
	case len(m.Filters) == 0:
		return "invalid: REQ: there is no filter"
	case !replaces && len(s.subs) >= maxSubs:
		return fmt.Sprintf("error: there are %d subscriptions already", maxSubs)
	}
	return text(&f.CloseReq, &f.CloseReqNext)
}

// push delivers a new event, once for each matching subscription.
func (s *session) push(e *nostr.Event) {
	for sub, filters := range s.subs {
		for i := range filters {
			if filters[i].Matches(e) {
				s.deliver(sub, e)
				break
			}
		}
	}
}

func (s *session) deliver(sub string, e *nostr.Event) {
	f := &s.core.faults
	for range max(f.Repeat, 1) {
		s.sendMessage(&nostr.Message{Type: nostr.TypeEvent, Sub: sub, Event: f.spoil(e)})
	}
}

// answer sends the OK message about an event.
func (s *session) answer(e *nostr.Event, ok bool, text string) {
	reply := frame{message: &nostr.Message{Type: nostr.TypeOK, ID: e.ID, OK: ok, Text: text}}
	if d := s.core.faults.forEvent(e).OKDelay; d > 0 {
		reply.due = time.Now().Add(d)
	}
	s.send(reply)
}
