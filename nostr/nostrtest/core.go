package nostrtest

import (
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/nostr"
)

// core is the relay without its sockets: it handles the frames of clients, and
// queues frames for them in their sessions.
type core struct {
	url string

	mu       sync.Mutex
	faults   Faults
	store    *store
	received received
	sessions []*session
	numbered int // number of sessions so far
	maxQueue int
	changed  chan struct{} // closed and replaced after every change
}

func newCore(o options) *core {
	return &core{
		faults:   o.faults,
		store:    newStore(o.events),
		received: received{limit: o.received},
		// A client may have all stored events queued several times, and some new
		// ones.
		maxQueue: 4*o.events + 1024,
		changed:  make(chan struct{}),
	}
}

// update calls f with the lock held, and then wakes all waiters for a change.
func (c *core) update(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// read calls f with the lock held, and returns a channel that is closed after
// the next change.
func (c *core) read(f func()) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	return c.changed
}

// addSession adds a session.
func (c *core) addSession() (s *session) {
	c.update(func() {
		c.numbered++
		s = newSession(c, c.numbered)
		c.sessions = append(c.sessions, s)
		if c.faults.AuthRequired {
			s.challengeOnce()
		}
	})
	return s
}

// removeSession ends a session: its messages are ignored, and nothing more is
// queued for it.
func (c *core) removeSession(s *session) { c.update(func() { c.drop(s) }) }

func (c *core) drop(s *session) {
	s.over = true
	s.queue = queue{}
	c.sessions = slices.DeleteFunc(c.sessions, func(other *session) bool { return other == s })
	s.signal()
}

// receive handles a client's frame. It returns false if the link must be
// broken.
func (c *core) receive(s *session, text []byte) bool {
	m, err := nostr.ParseClientMessage(text)
	if err == nil && m.Event != nil {
		err = checkPublished(m.Event) // costly: done before taking the lock
	}
	c.update(func() {
		if s.over {
			return
		}
		c.received.add(Received{Link: s.number, Frame: string(text), Message: m})
		s.handle(m, err)
	})
	return !s.ended()
}

// next removes the next frame for the client; see [queue.next].
func (c *core) next(s *session) (f frame, wait time.Duration, ok bool) {
	c.read(func() { f, wait, ok = s.queue.next(time.Now()) })
	return f, wait, ok
}

// storeAndDeliver stores an event and delivers it to matching subscriptions.
func (c *core) storeAndDeliver(e *nostr.Event, honest bool) {
	c.store.add(e)
	if honest {
		c.store.applyDeletion(e)
	}
	for _, s := range slices.Clone(c.sessions) { // push may remove a session
		s.push(e)
	}
}

// raw queues a text for all clients.
func (c *core) raw(text string) {
	c.update(func() {
		for _, s := range slices.Clone(c.sessions) {
			s.put(frame{text: text})
		}
	})
}
