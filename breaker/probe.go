package breaker

import (
	"slices"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// probes are the calls that a half-open breaker has let through.
type probes struct {
	limit   int // under way at once, expired ones not counted
	timeout time.Duration
	last    uint64  // id of the last probe ever; ids are never used again
	pending []probe // those that have not reported, oldest first
	counts  Counts  // those that have
}

type probe struct {
	id      uint64
	expires time.Duration
}

// remembered is how many expired probes may still report and be counted. The
// bound only matters to callers who lose their permits; without it they would
// also lose memory.
const remembered = 64

// clear ends all probes: their reports will not count.
func (p *probes) clear() {
	p.pending = p.pending[:0]
	p.counts = Counts{}
}

// wait returns how long it takes until another probe may start even if none of
// those under way reports: 0 when it may start now.
func (p *probes) wait(now time.Duration) time.Duration {
	if len(p.pending) < p.limit {
		return 0
	}
	// They expire in the order in which they began, so this one makes room.
	return max(p.pending[len(p.pending)-p.limit].expires-now, 0)
}

// start begins a probe and returns its id.
func (p *probes) start(now time.Duration) uint64 {
	if len(p.pending) >= p.limit+remembered {
		p.pending = slices.Delete(p.pending, 0, 1)
	}
	p.last++
	p.pending = append(p.pending, probe{p.last, clock.Later(now, p.timeout)})
	return p.last
}

// end removes the probe and reports whether it was there, which it is once.
func (p *probes) end(id uint64) bool {
	i := slices.IndexFunc(p.pending, func(q probe) bool { return q.id == id })
	if i < 0 {
		return false
	}
	p.pending = slices.Delete(p.pending, i, i+1)
	return true
}

// count adds the result of a probe.
func (p *probes) count(b badness) {
	p.counts.Calls++
	p.counts.ConsecutiveFailures++
	switch {
	case b.failed:
		p.counts.Failures++
	default:
		p.counts.ConsecutiveFailures = 0
	}
	if b.slow {
		p.counts.Slow++
	}
}
