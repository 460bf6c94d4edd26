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

	// maxEvent leaves room for what is around an event when it is delivered, so that
	// who published it in the largest message can also get it.
	maxEvent = nostr.MaxFrame - 512
)

// session is what a relay knows of one link. The core's lock is held in all its
// methods but ended.
type session struct {
	core   *core
	number int
	subs   map[string][]nostr.Filter
	queue  queue
	wake   chan struct{} // holds one: there is something to write, or it is over
	over   bool

	challenge  string
	challenged bool // the client was told the challenge
	known      bool // the client has said who it is

	sent, spoiled int // messages, malformed ones between them
}

func newSession(c *core, number int) *session {
	return &session{
		core: c, number: number, subs: map[string][]nostr.Filter{}, wake: make(chan struct{}, 1), challenge: rand.Text(),
	}
}

func (s *session) ended() (over bool) {
	s.core.look(func() { over = s.over })
	return over
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// put queues a frame. A client that does not read for too long is dropped, as real
// relays do: the queue is bounded.
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

// send queues a message, and garbage after some.
func (s *session) send(f frame) {
	s.put(f)
	s.sent++
	if every := s.core.faults.GarbageEvery; every > 0 && s.sent%every == 0 {
		s.put(frame{text: garbage(s.spoiled)})
		s.spoiled++
	}
}

func (s *session) say(m *nostr.Message) { s.send(frame{message: m}) }

func (s *session) notice(text string) {
	s.say(&nostr.Message{Type: nostr.TypeNotice, Text: text})
}

func (s *session) closed(sub, text string) {
	delete(s.subs, sub)
	s.say(&nostr.Message{Type: nostr.TypeClosed, Sub: sub, Text: text})
}

// handle does what a message asks for; err says what is wrong with it.
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

// request subscribes: first come the stored events, then those that are published.
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
		s.say(&nostr.Message{Type: nostr.TypeEOSE, Sub: m.Sub})
	}
}

// refusal returns why a subscription is refused, empty if it is not.
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

// push delivers an event that was just published, once for each subscription that
// wants it.
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
		s.say(&nostr.Message{Type: nostr.TypeEvent, Sub: sub, Event: f.spoil(e)})
	}
}

// answer says what became of an event.
func (s *session) answer(e *nostr.Event, ok bool, text string) {
	reply := frame{message: &nostr.Message{Type: nostr.TypeOK, ID: e.ID, OK: ok, Text: text}}
	if d := s.core.faults.of(e).OKDelay; d > 0 {
		reply.due = time.Now().Add(d)
	}
	s.send(reply)
}
