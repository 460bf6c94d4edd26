package health

import (
	"math/bits"
	"time"
)

// members is a set of targets of one pool: bit i stands for target i.
type members uint64

func (s *members) add(i int) { *s |= 1 << i }

func (s members) len() int { return bits.OnesCount64(uint64(s)) }

// nth returns the n-th target of the set, counted from 0.
func (s members) nth(n int) int {
	for ; n > 0; n-- {
		s &= s - 1
	}
	return bits.TrailingZeros64(uint64(s))
}

// The methods below need the lock held.

// closedFor returns how much longer the server's Retry-After or the breaker
// keeps the target closed; 0 if neither does.
func (t *target) closedFor(now time.Duration) time.Duration {
	wait := max(t.cool-now, 0)
	if t.breaker != nil {
		wait = max(wait, t.breaker.OpenForAt(now))
	}
	return wait
}

// ejected reports whether the target must not get another call: its ejection lasts,
// or the ejection is over and the single trial call that follows it is in flight.
func (t *target) ejected(now time.Duration) bool {
	return t.ejections > 0 && (now < t.out || t.trials > 0)
}

// cost returns the target's score divided by its weight.
func (t *target) cost(now time.Duration) float64 { return t.score.CostAt(now) / float64(t.Weight) }

// partition returns the open targets (closed neither by their server nor by
// their breaker) and, of those, the ones that are in (not ejected).
func (p *Pool) partition(now time.Duration) (open, in members) {
	open, in = p.all, p.all
	for rest := p.suspects; rest != 0; rest &= rest - 1 {
		i := rest.nth(0)
		switch t := &p.targets[i]; {
		case t.closedFor(now) > 0:
			open &^= 1 << i
			in &^= 1 << i
		case t.ejected(now):
			in &^= 1 << i
		case t.ejections == 0 && t.breaker == nil:
			p.suspects &^= 1 << i
		}
	}
	return open, in
}

// inPanic reports whether the share of the open targets that are in is below
// PoolConfig.Panic, or none of them is in.
func (p *Pool) inPanic(open, in members) bool {
	return in == 0 || float64(in.len()) < p.config.Panic*float64(open.len())
}

// callable returns the targets that may be called, ejected ones included if the
// pool is in panic. It is empty only if all targets are closed.
func (p *Pool) callable(now time.Duration) members {
	open, in := p.partition(now)
	if p.inPanic(open, in) {
		return open
	}
	return in
}

// candidates returns the targets among which a first call may choose: those of
// the lowest tier, or, in panic, all open ones.
func (p *Pool) candidates(now time.Duration) members {
	open, in := p.partition(now)
	if p.inPanic(open, in) {
		return open
	}
	return p.lowestTier(in)
}

// lowestTier returns the targets of the set that are in its lowest tier.
func (p *Pool) lowestTier(s members) members {
	for _, tier := range p.tiers {
		if low := s & tier; low != 0 {
			return low
		}
	}
	return 0
}

// bestOfTwo draws two different targets of the set and returns the one that
// costs less. The set must not be empty.
func (p *Pool) bestOfTwo(now time.Duration, s members, u uint64) int {
	n := uint64(s.len())
	if n == 1 {
		return s.nth(0)
	}
	a := int((u >> 32) * n >> 32)
	b := int((u & (1<<32 - 1)) * (n - 1) >> 32)
	if b >= a {
		b++
	}
	i, j := s.nth(a), s.nth(b)
	if p.targets[j].cost(now) < p.targets[i].cost(now) {
		return j
	}
	return i
}
