package notify

import (
	"time"
)

// maxSeen limits the size of the maps seen and ends of a gate. A gate drops the oldest
// entry to make room: a duplicate message is better than a lost one.
const maxSeen = 1024

// endTime is the longest time between the two messages about the end of a run: that a step
// gave up, and that the run gave up. The engine may process the two events at different
// times.
const endTime = time.Hour

// Held is the reason why a message is held back.
type Held uint8

// The reasons.
const (
	NotHeld   Held = iota // the message is not held back
	Duplicate             // the same topic was sent within Spec.Dedupe, or it is the second message about the end of a run
	TooMany               // Spec.AtMost is reached
)

// String returns the reason for logs and stored results.
func (h Held) String() string {
	return [...]string{"not held back", "the same message was sent recently", "the rate limit is reached"}[h]
}

// Gate holds back duplicate messages and messages above the rate limit of one notifier. It
// has no clock: the time is an argument. It is not safe for concurrent use. Pass it only
// new messages, not further attempts to send one.
type Gate struct {
	atMost Rate
	dedupe time.Duration
	sent   []time.Time // ring of the times of the last atMost.N messages that were sent
	next   int         // index of the oldest in sent
	seen   map[topic]time.Time
	ends   map[ending]time.Time
	held   int       // number of messages held back since the last one that was sent
	since  time.Time // when the first of them was held back
}

// topic identifies duplicates: of the messages with the same topic, one is sent within
// Spec.Dedupe.
type topic struct {
	event   Event
	subject string
}

// ending is one of the two events at the end of a run: that a step gave up, and that the run
// gave up. The events come in either order, and the second is a duplicate.
type ending struct {
	run  string
	half Event
}

// NewGate returns the gate of a notifier.
func NewGate(n *Spec) *Gate {
	return &Gate{atMost: n.AtMost, dedupe: n.Dedupe, sent: make([]time.Time, n.AtMost.N), seen: map[topic]time.Time{}, ends: map[ending]time.Time{}}
}

// Admit returns NotHeld if the message is to be sent, or why it is held back. The returned
// message also states how many messages were held back before it. A test message is never
// held back.
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

// ended reports whether the message is the second of the two messages about the end of a
// run, which is a duplicate even if the first was held back. It is true only once per end:
// a run that is retried may end again.
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

// about returns the topic of a message. GaveUp and DeadLetter are the same topic. Each question is a
// topic of its own.
func about(m Message) topic {
	switch m.Event {
	case DeadLetter:
		return topic{GaveUp, m.Subject}
	case Asked:
		return topic{m.Event, m.Run + "/" + m.Step}
	}
	return topic{m.Event, m.Subject}
}

// within reports whether at is less than d before now. It is false for the zero time, and
// for a time after now, which is possible if the clock was set back.
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

// note records that a message is sent.
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

// forget removes all entries for which old is true. If the map is still full, it removes the
// oldest entry.
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
