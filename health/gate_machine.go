package health

import (
	"context"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/clock"
)

// The methods in this file are the state machine. They need the lock held, read
// no clock and start nothing.

// close shuts the gate. The first probe is due one step from now.
func (g *Gate) close(now, wait time.Duration) {
	if g.state == GateOpen {
		g.steps = 0 // one that closes again while it lets the waiters through goes on where it was
	}
	g.word.Store((g.word.Load()>>1+1)<<1 | shut)
	g.failures.Store(0)
	g.state, g.since, g.probing = GateClosed, now, false
	g.predicted = g.expected(now)
	g.postpone(now, wait)
}

// postpone sets the time of the next probe after a failure, and turns away those
// for whom that is too late.
func (g *Gate) postpone(now, wait time.Duration) {
	g.last = now
	g.due = clock.Later(now, max(g.gap(now), min(wait, maxShut)))
	g.sweep(now)
}

// gap returns how long to wait from now on until the next probe.
func (g *Gate) gap(now time.Duration) time.Duration {
	s := g.config.Probe
	if g.recovery == nil {
		return s.Delay(g.steps+1, 0, g.draw())
	}
	jitter := s.Jitter
	s.Jitter = backoff.None
	step := s.Delay(g.steps+1, 0, 0)
	learned := min(max(g.recovery.Gap(now-g.since), step/2), clock.Later(step, step))
	if s.Cap > 0 {
		learned = min(learned, s.Cap)
	}
	return backoff.Schedule{Base: learned, Cap: s.Cap, Jitter: jitter}.Delay(1, 0, g.draw())
}

func (g *Gate) draw() uint64 {
	if !g.config.Probe.Random() {
		return 0
	}
	return g.random()
}

// expected returns the estimate's median for the time until recovery.
func (g *Gate) expected(now time.Duration) time.Duration {
	if g.recovery == nil {
		return 0
	}
	return g.recovery.Predict(now - g.since).Median
}

// probed takes the report of a probe of this closing.
func (g *Gate) probed(now time.Duration, probe uint64, o Outcome) {
	current := g.probing && probe == g.probes
	switch {
	case g.state != GateClosed:
	case !o.failed() && o.Result != Canceled.Result:
		g.reopen(now) // even from a probe that took too long: it says what all want to know
	case !current:
	case o.failed():
		g.probing = false
		g.steps++
		g.postpone(now, o.Wait)
	default:
		// No news. The next one is not due at once: callers that give up one after
		// the other would each send another probe.
		g.probing = false
		g.due = max(now, clock.Later(g.began, g.gap(now)))
		g.sweep(now)
	}
	g.advance(now)
}

// reopen starts to let the waiters through.
func (g *Gate) reopen(now time.Duration) {
	g.lastOutage, g.lastGuess = now-g.since, g.predicted
	if g.recovery != nil {
		g.recovery.Observe(g.last-g.since, now-g.since)
	}
	g.failures.Store(0)
	g.state, g.probing = GateReleasing, false
	g.due, g.end = now, clock.Later(now, g.config.Release)
	g.advance(now)
}

// next returns when something is due for those who wait.
func (g *Gate) next() (at time.Duration, ok bool) {
	switch {
	case len(g.turns) == 0 || g.state == GateOpen:
		return 0, false
	case g.probing:
		return clock.Later(g.began, g.config.ProbeTimeout), true
	default:
		return g.due, true
	}
}

// advance does all that is due.
func (g *Gate) advance(now time.Duration) {
	switch g.state {
	case GateOpen:
	case GateClosed:
		if expiry := clock.Later(g.began, g.config.ProbeTimeout); g.probing && now >= expiry {
			g.probing = false
			g.steps++
			g.postpone(expiry, 0)
		}
		if !g.probing && now >= g.due {
			if t := g.pop(now); t != nil {
				t.settle(g.startProbe(now), nil)
			}
		}
	case GateReleasing:
		g.release(now)
	}
}

// release lets through whoever's time has come. What is left of the time is
// shared evenly by those who are left, newcomers included, so that nobody waits
// longer than it lasts.
func (g *Gate) release(now time.Duration) {
	for len(g.turns) > 0 && now >= g.due {
		t := g.pop(now)
		if t == nil {
			break
		}
		t.settle(Pass{gate: g, closing: g.word.Load() >> 1}, nil)
		if n := len(g.turns); n > 0 {
			g.due += max(g.end-g.due, 0) / time.Duration(n)
		}
	}
	if len(g.turns) == 0 {
		g.state = GateOpen
		g.word.And(^uint64(shut))
	}
}

// pop takes out the most urgent waiter that is still in time; nil if there is
// none. Those that are too late are told so.
func (g *Gate) pop(now time.Duration) *Turn {
	if len(g.turns) == 0 {
		return nil
	}
	w := g.line.ReleaseAt(now) // the gate's own permit; the waiter's stands for it from now on
	if w == nil {
		g.line.TryAcquire()
		for _, t := range g.turns {
			g.remove(t, context.DeadlineExceeded)
		}
		return nil
	}
	t := g.turns[w]
	delete(g.turns, w)
	return t
}

// startProbe makes a pass the prober's.
func (g *Gate) startProbe(now time.Duration) Pass {
	g.probes++
	g.probing, g.began = true, now
	return Pass{gate: g, closing: g.word.Load() >> 1, probe: g.probes}
}

// admit lets a newcomer through that need not wait. What was due for those who
// wait has been done.
func (g *Gate) admit(now time.Duration) (Pass, bool) {
	switch {
	case g.state == GateOpen:
		return Pass{gate: g, closing: g.word.Load() >> 1}, true
	case g.state == GateClosed && !g.probing && now >= g.due:
		return g.startProbe(now), true
	}
	return Pass{}, false
}

// hopeless returns an error if the gate cannot open before the deadline.
func (g *Gate) hopeless(now, deadline time.Duration) error {
	if deadline == 0 || g.state != GateClosed || g.probing || deadline > g.due {
		return nil
	}
	return &ClosedError{Next: max(g.due-now, 0), Expected: g.expected(now), Within: max(deadline-now, 0)}
}

// sweep turns away the waiters whose deadlines come before the next probe.
func (g *Gate) sweep(now time.Duration) {
	for _, t := range g.turns {
		if err := g.hopeless(now, t.deadline); err != nil {
			g.remove(t, err)
		}
	}
}

// remove takes a waiter out and tells it why.
func (g *Gate) remove(t *Turn, err error) {
	g.line.Cancel(t.waiter)
	delete(g.turns, t.waiter)
	t.settle(Pass{}, err)
}
