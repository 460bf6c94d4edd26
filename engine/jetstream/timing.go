package jetstream

import "time"

// timing is what follows from the time of a lease. With the default of 12 s it is
// the number in brackets.
type timing struct {
	beat    time.Duration // between two signs of life (1 s)
	fresh   time.Duration // without success of our own, nobody's silence counts (2 s)
	cutOff  time.Duration // after the last sign of life, if we have no connection, our leases end (2.5 s)
	gone    time.Duration // one who is silent so long and has no connection is expelled (3 s)
	ended   time.Duration // after the last sign of life our leases end (11 s)
	expelAt time.Duration // one who is silent so long is expelled (12 s)
}

// timingOf returns the timing for the time of a lease. Whoever ends its own leases
// does so before others may expel it: cutOff < gone and ended < expelAt. The time
// must be longer than a bucket may be without a leader, and JetStream's elections
// take 4 to 9 seconds: otherwise all leases end when one server does.
func timingOf(lease time.Duration) timing {
	return timing{
		beat:    lease / 12,
		fresh:   lease / 6,
		cutOff:  lease * 5 / 24,
		gone:    lease / 4,
		ended:   lease * 11 / 12,
		expelAt: lease,
	}
}

// pulse is how we know that the others take us for alive. It is not safe for use
// by several goroutines.
type pulse struct {
	timing timing
	last   time.Time // when the last sign of life was begun that arrived
	down   bool      // there is no connection
}

// beat notes a sign of life that was begun at the time and has arrived.
func (p *pulse) beat(begun time.Time) {
	if begun.After(p.last) {
		p.last = begun
	}
}

// left returns for how long our leases hold without another sign of life.
func (p *pulse) left(now time.Time) time.Duration {
	limit := p.timing.ended
	if p.down {
		limit = p.timing.cutOff
	}
	return p.last.Add(limit).Sub(now)
}

// fresh reports whether our own signs of life arrive, so that the silence of
// others means something.
func (p *pulse) fresh(now time.Time) bool { return now.Sub(p.last) < p.timing.fresh }
