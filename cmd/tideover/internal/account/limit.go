package account

import "time"

// Two stated ends that differ by at most sameEnd count as the same. Otherwise each message that
// says "in 2 hours" would change the file.
const sameEnd = time.Minute

// Limit describes the limit of an account.
type Limit struct {
	Serial int64         // number of the change that recorded it; grows with each limit
	Left   time.Duration // until it ends; 0 if the end is unknown
	Why    string        // description, beginning with the name of the account
}

// Limit returns the limit of the account; nil if it has none. It reads the file without the lock.
func (g *Gate) Limit() *Limit { return g.limitOf(g.current(), g.now()) }

func (g *Gate) limitOf(s *state, now moment) *Limit {
	l := s.active(now)
	if l == nil {
		return nil
	}
	known := &Limit{Serial: l.Serial, Why: l.describe(g.name, g.busy(s, "", now), now)}
	if l.stated() {
		known.Left = l.left(now)
	}
	return known
}

// RecordLimit records a limit with a stated end, for a caller that has no [Pass]. It returns the
// limit that now applies, and whether that is the new one: a known limit that ends later stays.
func (g *Gate) RecordLimit(a Asker, r Reset, why string) (known *Limit, recorded bool) {
	g.update(func(s *state, now moment) bool {
		l, wait := s.active(now), r.wait(now)
		if wait > 0 && (l == nil || !l.stated() || l.left(now)+sameEnd < wait) {
			s.setLimit(&a, r, why, now)
			recorded = true
		}
		known = g.limitOf(s, now)
		return recorded
	})
	return known, recorded
}

// EndLimit removes the limit. Call it after the account was used successfully, with the serial of
// the limit that was known before that use: a limit that was recorded later stays.
func (g *Gate) EndLimit(serial int64) {
	g.update(func(s *state, _ moment) bool {
		if s.Limit == nil || s.Limit.Serial > serial {
			return false
		}
		s.Limit = nil
		return true
	})
}
