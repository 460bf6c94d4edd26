package notify

import (
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// maxSeen bounds what a gate remembers. When more is going on, the oldest is
// forgotten: a message too many is better than one too few.
const maxSeen = 1024

// Held says why a message is held back.
type Held uint8

// The reasons. Zero is none: the message is to be sent.
const (
	NotHeld   Held = iota
	Duplicate      // the same has been told a moment ago
	TooMany        // the notifier's limit is reached
)

// String says why, for a log.
func (h Held) String() string {
	return [...]string{"not held back", "told a moment ago", "too many"}[h]
}

// Gate holds back what would be too much for one notifier. It has no clock: the
// time is an argument. It is not safe for use by several goroutines, and it is for
// new messages only, not for further attempts to send one.
type Gate struct {
	atMost config.Rate
	dedupe time.Duration
	sent   []time.Time // the last atMost.N, as a ring
	next   int         // place of the oldest in sent
	seen   map[topic]told
	held   int       // since the last message that was sent
	since  time.Time // when the first of them was held back
}

// topic is what two messages must share for one of them to be enough.
type topic struct {
	event   Event
	subject string
}

type told struct {
	at    time.Time
	event Event
	run   string
}

// NewGate returns the gate of a notifier.
func NewGate(n *config.Notifier) *Gate {
	return &Gate{atMost: n.AtMost, dedupe: n.Dedupe, sent: make([]time.Time, n.AtMost.N), seen: map[topic]told{}}
}

// Admit says whether the message is to be sent, and returns it with what has been
// held back before, so that nobody takes silence for calm. A test always passes.
func (g *Gate) Admit(m Message, now time.Time) (Message, Held) {
	if m.Event == Test {
		return m, NotHeld
	}
	key := about(m)
	if last, ok := g.seen[key]; ok && within(last.at, now, g.dedupe) {
		// A run's dead letter says again what its step has said.
		if again := m.Run != "" && m.Run == last.run && m.Event != last.event; !again {
			g.hold(now)
		}
		return m, Duplicate
	}
	if g.atMost.N > 0 && within(g.sent[g.next], now, g.atMost.Per) {
		g.hold(now)
		return m, TooMany
	}
	g.note(key, told{now, m.Event, m.Run})
	m = m.more(g.held, g.since.In(now.Location()))
	g.held = 0
	return m, NotHeld
}

// about returns the topic of a message. That a step gave up and that its run did
// is one topic.
func about(m Message) topic {
	if m.Event == DeadLetter {
		return topic{GaveUp, m.Subject}
	}
	return topic{m.Event, m.Subject}
}

// within reports whether the moment is less than d ago. One that is to come, after
// the clock was put back, is not.
func within(at, now time.Time, d time.Duration) bool {
	age := now.Sub(at)
	return !at.IsZero() && age >= 0 && age < d
}

func (g *Gate) hold(now time.Time) {
	if g.held == 0 {
		g.since = now
	}
	g.held++
}

// note remembers a message that is sent.
func (g *Gate) note(key topic, t told) {
	if g.atMost.N > 0 {
		g.sent[g.next] = t.at
		g.next = (g.next + 1) % g.atMost.N
	}
	if g.dedupe == 0 {
		return
	}
	if _, ok := g.seen[key]; !ok && len(g.seen) >= maxSeen {
		g.forget(t.at)
	}
	g.seen[key] = t
}

// forget makes room: for all that is too old to matter, or else the oldest.
func (g *Gate) forget(now time.Time) {
	var oldest topic
	var at time.Time
	for key, t := range g.seen {
		if !within(t.at, now, g.dedupe) {
			delete(g.seen, key)
		} else if at.IsZero() || t.at.Before(at) {
			oldest, at = key, t.at
		}
	}
	if len(g.seen) >= maxSeen {
		delete(g.seen, oldest)
	}
}
