package health

import (
	"math/rand/v2"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/clock"
)

// Call is one call of a target that a [Pool] chose. The caller must end it with
// [Call.Done]; until then it counts as in flight. Use a Call in one goroutine
// at a time. The zero Call ignores reports.
type Call struct {
	pool    *Pool
	index   int
	start   time.Duration
	wait    time.Duration
	tried   members // targets that the same work has tried before
	counted bool    // the call counts as in flight
	trial   bool    // a call of a target that was ejected and has not succeeded since
	heard   bool    // the first byte arrived
	refused bool
	over    bool
}

// Target returns the target to call.
func (c *Call) Target() Target {
	if c.pool == nil {
		return Target{}
	}
	return c.pool.targets[c.index].Target
}

// Wait returns how long the target is still closed: 0 unless all targets are
// closed. If it is above 0, do not make the call: answer with this Retry-After
// instead. Such a call does not count as in flight and need not be ended.
func (c *Call) Wait() time.Duration { return c.wait }

// FirstByte reports that the response began. Without it, the end of a
// successful call counts as its first byte; call it for responses that are
// streamed.
func (c *Call) FirstByte() { c.FirstByteAt(clock.Now()) }

// FirstByteAt is [Call.FirstByte] at the time now.
func (c *Call) FirstByteAt(now time.Duration) {
	if c.pool == nil || c.heard || c.over {
		return
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.recordFirstByte(now)
}

// recordFirstByte counts the first byte. It also resets the failure count,
// because the target answers. The caller holds the lock.
func (c *Call) recordFirstByte(now time.Duration) {
	c.heard = true
	t := &c.pool.targets[c.index]
	t.score.ObserveAt(now, now-c.start)
	t.failures, t.ejections, t.ejectFor, t.out = 0, 0, 0, 0
}

// Done ends the call. A second Done does nothing.
func (c *Call) Done(o Outcome) { c.DoneAt(clock.Now(), rand.Uint64(), o) }

// DoneAt is [Call.Done] at the time now; u is a uniform random number that
// decides the jitter of an ejection.
func (c *Call) DoneAt(now time.Duration, u uint64, o Outcome) {
	if c.pool == nil || c.over {
		return
	}
	c.over = true
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.targets[c.index]
	if c.counted {
		t.score.End()
	}
	if c.trial {
		t.trials--
	}
	switch {
	case o.failed():
		c.refused = o.Refused
		p.recordFailure(c.index, now, u, o.Wait)
	case o.Result == breaker.Success && !c.heard:
		c.recordFirstByte(now)
	}
}

// recordFailure counts a failure of target i. The caller holds the lock.
func (p *Pool) recordFailure(i int, now time.Duration, u uint64, wait time.Duration) {
	t := &p.targets[i]
	t.score.FailAt(now, wait)
	p.closeFor(i, now, wait)
	t.failures++
	// Calls that began before the ejection may fail during it. They prove
	// nothing new and must not make the ejection longer.
	if t.failures >= p.config.Failures && now >= t.out {
		t.ejections++
		t.ejectFor = p.config.Eject.Delay(t.ejections, t.ejectFor, u)
		t.out = clock.Later(now, t.ejectFor)
		p.suspects.add(i)
	}
}

// closeFor closes target i for the server's Retry-After; 0 does nothing. The
// caller holds the lock.
func (p *Pool) closeFor(i int, now, wait time.Duration) {
	if wait > 0 {
		t := &p.targets[i]
		t.cool = max(t.cool, clock.Later(now, min(wait, p.config.MaxCool)))
		p.suspects.add(i)
	}
}
