package nostrtest

import (
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/nostr"
)

// core is the relay without its sockets: frames of clients go in, frames for
// clients come out of the queues of their sessions.
type core struct {
	url string

	mu       sync.Mutex
	faults   Faults
	store    *store
	received received
	sessions []*session
	numbered int // sessions so far
	maxQueue int
	changed  chan struct{} // closed and replaced when anything happens
}

func newCore(o options) *core {
	return &core{
		faults:   o.faults,
		store:    newStore(o.events),
		received: received{limit: o.received},
		// Room for all events more than once, and for some that come meanwhile.
		maxQueue: 4*o.events + 1024,
		changed:  make(chan struct{}),
	}
}

// do calls f alone, then wakes whoever waits for something to happen.
func (c *core) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// look calls f alone and returns a channel that is closed when anything happens
// after it.
func (c *core) look(f func()) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	return c.changed
}

// join adds a session.
func (c *core) join() (s *session) {
	c.do(func() {
		c.numbered++
		s = newSession(c, c.numbered)
		c.sessions = append(c.sessions, s)
		if c.faults.AuthRequired {
			s.challengeOnce()
		}
	})
	return s
}

// leave ends a session: nothing is taken from it, nothing is put into its queue.
func (c *core) leave(s *session) { c.do(func() { c.drop(s) }) }

func (c *core) drop(s *session) {
	s.over = true
	s.queue = queue{}
	c.sessions = slices.DeleteFunc(c.sessions, func(other *session) bool { return other == s })
	s.signal()
}

// receive does what a client's frame asks for. It reports false when the link is
// to be broken.
func (c *core) receive(s *session, text []byte) bool {
	m, err := nostr.ParseClientMessage(text)
	if err == nil && m.Event != nil {
		err = checkPublished(m.Event) // costly: before anybody is kept waiting
	}
	c.do(func() {
		if s.over {
			return
		}
		c.received.add(Received{Link: s.number, Frame: string(text), Message: m})
		s.handle(m, err)
	})
	return !s.ended()
}

// next takes the next frame for the client, see [queue.next].
func (c *core) next(s *session) (f frame, wait time.Duration, ok bool) {
	c.look(func() { f, wait, ok = s.queue.next(time.Now()) })
	return f, wait, ok
}

// keep stores an event and hands it to all who want it.
func (c *core) keep(e *nostr.Event, honest bool) {
	c.store.add(e)
	if honest {
		c.store.obey(e)
	}
	for _, s := range slices.Clone(c.sessions) { // a session that can't keep up is dropped
		s.push(e)
	}
}

// inject does the same for an event of nobody's. A forged deletion deletes nothing.
func (c *core) inject(e *nostr.Event) {
	honest := e.Verify() == nil
	c.do(func() { c.keep(e, honest) })
}

// raw puts a text into all queues.
func (c *core) raw(text string) {
	c.do(func() {
		for _, s := range slices.Clone(c.sessions) {
			s.put(frame{text: text})
		}
	})
}
