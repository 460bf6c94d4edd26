package breaker

import (
	"slices"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// probes are the calls that a half-open breaker has let through.
type probes struct {
	limit   int // how many may be in flight at once, expired ones not counted
	timeout time.Duration
	last    uint64  // id of the latest probe; ids are never reused
	pending []probe // probes that have not reported, oldest first
	counts  Counts  // results of the probes that have reported
}

type probe struct {
	id      uint64
	expires time.Duration
}

// maxExpired is how many expired probes may still report and count. Without
// this limit, callers that never report would make pending grow for ever.
const maxExpired = 64

// clear drops all probes: their reports will not count.
func (p *probes) clear() {
	p.pending = p.pending[:0]
	p.counts = Counts{}
}

// refusedFor returns the time until another probe may start, if no probe in flight
// reports before; 0 if one may start now.
func (p *probes) refusedFor(now time.Duration) time.Duration {
	if len(p.pending) < p.limit {
		return 0
	}
	// Probes expire in the order in which they began. When this one expires,
	// fewer than limit are left that have not expired.
	return max(p.pending[len(p.pending)-p.limit].expires-now, 0)
}

// start begins a probe and returns its id.
func (p *probes) start(now time.Duration) uint64 {
	if len(p.pending) >= p.limit+maxExpired {
		p.pending = slices.Delete(p.pending, 0, 1)
	}
	p.last++
	p.pending = append(p.pending, probe{p.last, clock.Later(now, p.timeout)})
	return p.last
}

// finish removes the probe and reports whether it was pending.
func (p *probes) finish(id uint64) bool {
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
