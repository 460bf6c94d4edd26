package notify

import (
	"time"
)

// maxSeen bounds what a gate remembers. When more is going on, the oldest is
// forgotten: a message too many is better than one too few.
const maxSeen = 1024

// endTime is how long the two halves of the end of a run may lie apart. They happen
// at once, and are admitted as the engine gets to them.
const endTime = time.Hour

// Held is the reason why a message is held back.
type Held uint8

// The reasons. Zero is none: the message is to be sent.
const (
	NotHeld   Held = iota
	Duplicate      // the same was sent a moment ago
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
	atMost Rate
	dedupe time.Duration
	sent   []time.Time // the last atMost.N, as a ring
	next   int         // place of the oldest in sent
	seen   map[topic]time.Time
	ends   map[ending]time.Time
	held   int       // since the last message that was sent
	since  time.Time // when the first of them was held back
}

// topic is what two messages must share for one of them to be enough.
type topic struct {
	event   Event
	subject string
}

// ending is one of the two events at the end of a run: the step gave up, or the run did. The
// other event follows, in either order, and is a duplicate.
type ending struct {
	run  string
	half Event
}

// NewGate returns the gate of a notifier.
func NewGate(n *Spec) *Gate {
	return &Gate{atMost: n.AtMost, dedupe: n.Dedupe, sent: make([]time.Time, n.AtMost.N), seen: map[topic]time.Time{}, ends: map[ending]time.Time{}}
}

// Admit says whether the message is to be sent, and returns it with what has been
// held back before, so that its reader knows of them. A test always passes.
func (g *Gate) Admit(m Message, now time.Time) (Message, Held) {
	if m.Event == Test {
		return m, NotHeld
	}
	if g.ended(m, now) {
		return m, Duplicate
	}
	key := about(m)
	if last, ok := g.seen[key]; ok && within(last, now, g.dedupe) {
		g.hold(now)
		return m, Duplicate
	}
	if g.atMost.N > 0 && within(g.sent[g.next], now, g.atMost.Per) {
		g.hold(now)
		return m, TooMany
	}
	g.note(key, now)
	m = m.more(g.held, g.since.In(now.Location()))
	g.held = 0
	return m, NotHeld
}

// ended reports whether the message is the second half of the end of a run, also
// if the first was held back, whereby it was counted. It is so once: a run that is
// repaired may end again.
func (g *Gate) ended(m Message, now time.Time) bool {
	other := map[Event]Event{GaveUp: DeadLetter, DeadLetter: GaveUp}[m.Event]
	if m.Run == "" || other == "" {
		return false
	}
	first, ok := g.ends[ending{m.Run, other}]
	if delete(g.ends, ending{m.Run, other}); ok && within(first, now, endTime) {
		return true
	}
	if len(g.ends) >= maxSeen {
		forget(g.ends, func(at time.Time) bool { return !within(at, now, endTime) })
	}
	g.ends[ending{m.Run, m.Event}] = now
	return false
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
func (g *Gate) note(key topic, now time.Time) {
	if g.atMost.N > 0 {
		g.sent[g.next] = now
		g.next = (g.next + 1) % g.atMost.N
	}
	if g.dedupe == 0 {
		return
	}
	if _, ok := g.seen[key]; !ok && len(g.seen) >= maxSeen {
		forget(g.seen, func(at time.Time) bool { return !within(at, now, g.dedupe) })
	}
	g.seen[key] = now
}

// forget makes room: for all that is too old to matter, or else the oldest.
func forget[K comparable](m map[K]time.Time, old func(time.Time) bool) {
	var oldest K
	var at time.Time
	for key, t := range m {
		if old(t) {
			delete(m, key)
		} else if at.IsZero() || t.Before(at) {
			oldest, at = key, t
		}
	}
	if len(m) >= maxSeen {
		delete(m, oldest)
	}
}
