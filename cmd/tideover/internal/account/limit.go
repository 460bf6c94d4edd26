package account

import (
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// sameEnd is by how much the end of a limit may be stated later than it is known and still be the same. Whoever is told
// "in 2 hours" again and again would otherwise change the file each time.
const sameEnd = time.Minute

// Limit is what is known of the limit of an account.
type Limit struct {
	Serial int64         // of the change that recorded it; a later limit has a higher one
	Left   time.Duration // until it ends; 0 means that the end is not known
	Why    string        // in words, beginning with the name of the account
}

// Limit returns the limit of the account, or nil if it has none. It reads the file, without the lock.
func (g *Gate) Limit() *Limit {
	s, now := g.look(), g.now()
	return g.limitOf(s, now)
}

func (g *Gate) limitOf(s *state, now moment) *Limit {
	l := s.active(now)
	if l == nil {
		return nil
	}
	known := &Limit{Serial: l.Serial, Why: l.describe(g.name, s.probedBy("", now), now)}
	if l.stated() {
		known.Left = l.left(now)
	}
	return known
}

// RecordLimit records a limit whose end is stated, for one who uses the account without asking before. It returns what is
// known then, and whether that is what was stated: a later end that was known before stays.
func (g *Gate) RecordLimit(a Asker, r Reset, why string) (known *Limit, recorded bool) {
	g.update(func(s *state, now moment) bool {
		l, wait := s.active(now), r.wait(now)
		if wait > 0 && (l == nil || !l.stated() || l.left(now)+sameEnd < wait) {
			s.Limit = &limit{moment: now, Serial: s.Serial + 1, ID: a.ID, By: textfmt.TruncateValid(a.Name, maxText, "…"), Why: textfmt.TruncateValid(why, maxText, "…"), Wait: wait}
			if r.In == 0 {
				s.Limit.Until = r.At.Round(0)
			}
			recorded = true
		}
		known = g.limitOf(s, now)
		return recorded
	})
	return known, recorded
}

// EndLimit forgets the limit with the serial, or an earlier one: the account was used since it was known. A limit that
// was recorded later stays.
func (g *Gate) EndLimit(serial int64) {
	g.update(func(s *state, _ moment) bool {
		if s.Limit == nil || s.Limit.Serial > serial {
			return false
		}
		s.Limit = nil
		return true
	})
}
