package health

import (
	"math/rand/v2"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/clock"
)

// Call is one call of a target that a [Pool] chose. Whoever got it ends it with
// [Call.Done]: until then it counts as under way. Its methods are for one
// goroutine at a time. The zero Call ignores reports.
type Call struct {
	pool    *Pool
	index   int
	start   time.Duration
	wait    time.Duration
	tried   members // targets that the same work has been to before
	counted bool    // as under way
	trial   bool    // as one of a target that was ejected and has not answered since
	heard   bool    // the first byte came
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

// Wait returns how long the target is still closed: 0 unless all targets are.
// Then the call is better not made; answer with Retry-After instead. Such a call
// is not counted as under way and need not be ended.
func (c *Call) Wait() time.Duration { return c.wait }

// FirstByte reports that the answer began. Without it, the end of a call that
// succeeds counts as its first byte; calls that stream should not wait so long.
func (c *Call) FirstByte() { c.FirstByteAt(clock.Now()) }

// FirstByteAt is [Call.FirstByte] at the time now.
func (c *Call) FirstByteAt(now time.Duration) {
	if c.pool == nil || c.heard || c.over {
		return
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.hear(now)
}

// hear counts the first byte, which also ends a row of failures: the target is
// answering. The caller holds the lock.
func (c *Call) hear(now time.Duration) {
	c.heard = true
	t := &c.pool.targets[c.index]
	t.score.ObserveAt(now, now-c.start)
	t.failures, t.ejections, t.ejectFor, t.out = 0, 0, 0, 0
}

// Done ends the call. A second Done does nothing.
func (c *Call) Done(o Outcome) { c.DoneAt(clock.Now(), rand.Uint64(), o) }

// DoneAt is [Call.Done] at the time now; u is a uniform random number, for the
// length of an ejection.
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
		p.fail(c.index, now, u, o.Wait)
	case o.Result == breaker.Success && !c.heard:
		c.hear(now)
	}
}

// fail counts a failure of target i. The caller holds the lock.
func (p *Pool) fail(i int, now time.Duration, u uint64, wait time.Duration) {
	t := &p.targets[i]
	t.score.FailAt(now, wait)
	p.coolDown(i, now, wait)
	t.failures++
	// While it is out, calls that began before may still fail. They say nothing
	// new and must not make the ejection longer.
	if t.failures >= p.config.Failures && now >= t.out {
		t.ejections++
		t.ejectFor = p.config.Eject.Delay(t.ejections, t.ejectFor, u)
		t.out = clock.Later(now, t.ejectFor)
		p.suspects.add(i)
	}
}

// coolDown closes target i for as long as its server asked. The caller holds the
// lock.
func (p *Pool) coolDown(i int, now, wait time.Duration) {
	if wait > 0 {
		t := &p.targets[i]
		t.cool = max(t.cool, clock.Later(now, min(wait, p.config.MaxCool)))
		p.suspects.add(i)
	}
}
