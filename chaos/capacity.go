package chaos

import (
	"time"

	"github.com/tideover/tideover/limit"
)

// capacity is how many requests a rule accepts at once and in a span of time. It reads
// no clock.
type capacity struct {
	concurrent int
	rate       limit.Frequency
	service    Service

	ends     map[int]time.Time // of those in progress: when each is expected to be done; zero if that is not known
	admitted []time.Time       // the latest, a ring as long as the rate has events
	next     int
}

// unknownWait is the stated wait when no request in progress has a known end.
const unknownWait = time.Second

// full reports whether another request is above the limits, and for how long.
func (m *capacity) full(now time.Time) (left time.Duration, full bool) {
	if m.concurrent > 0 && len(m.ends) >= m.concurrent {
		left, full = m.soonest(now), true
	}
	if n := m.rate.Events; n > 0 && len(m.admitted) == n {
		// At most so many in any span: the oldest of the last n must be out of it.
		if again := m.admitted[m.next].Add(m.rate.Per).Sub(now); again > 0 {
			left, full = max(left, again), true
		}
	}
	return left, full
}

// soonest returns when the first of those in progress is done.
func (m *capacity) soonest(now time.Time) time.Duration {
	least := time.Duration(-1)
	for _, end := range m.ends {
		if left := end.Sub(now); left > 0 && (least < 0 || left < least) {
			least = left
		}
	}
	if least < 0 {
		return unknownWait
	}
	return least
}

// admit counts a request, and returns how long its work takes.
func (m *capacity) admit(number int, now time.Time) (work time.Duration) {
	work = m.service.Base + time.Duration(len(m.ends))*m.service.More
	if m.ends == nil {
		m.ends = map[int]time.Time{}
	}
	m.ends[number] = time.Time{}
	switch n := m.rate.Events; {
	case n == 0:
	case len(m.admitted) < n:
		m.admitted = append(m.admitted, now)
	default:
		m.admitted[m.next] = now
		m.next = (m.next + 1) % n
	}
	return work
}

// expect records when a request is likely to be done.
func (m *capacity) expect(number int, end time.Time) { m.ends[number] = end }

// release ends a request.
func (m *capacity) release(number int) { delete(m.ends, number) }
