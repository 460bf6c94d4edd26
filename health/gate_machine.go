package health

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// gateMachine is the state machine of a [Gate]: it decides who passes, who probes
// and who waits. It reads no clock, starts no goroutine and sets no timer. Its
// methods need the gate's lock held; word and failures may be read without it.
type gateMachine struct {
	gate     *Gate      // the gate that it belongs to, for the passes
	config   GateConfig // without zeros
	recovery *Recovery  // nil without WithRecovery
	random   func() uint64

	// word is all that a call needs while the gate is open: how often the gate has
	// closed, shifted left by one, and the bit shut.
	word     atomic.Uint64
	failures atomic.Int64 // failures in a row while the gate is not closed

	state GateState
	since time.Duration // when it closed
	last  time.Duration // when a call last failed
	steps int           // failed probes since the gate was last open
	due   time.Duration // when the next probe, or the next release, is due
	end   time.Duration // when all waiting callers must have passed

	probes  uint64 // probes started so far; the number of the latest
	probing bool   // the latest probe is under way
	began   time.Duration

	queue *limit.Concurrency
	turns map[*limit.Waiter]*Turn

	predicted             time.Duration // the median predicted at the closing
	lastOutage, lastGuess time.Duration // GateStats.LastOutage and LastPredicted
}

// close closes the gate. The first probe is due after one step of the schedule,
// or after wait if that is longer.
func (g *gateMachine) close(now, wait time.Duration) {
	if g.state == GateOpen {
		g.steps = 0 // a gate that closes again during a release continues its schedule
	}
	g.word.Store((g.word.Load()>>1+1)<<1 | shut)
	g.failures.Store(0)
	g.state, g.since, g.probing = GateClosed, now, false
	g.predicted = g.expectedRecovery(now)
	g.scheduleProbe(now, wait)
}

// scheduleProbe sets the time of the next probe after a failure, and rejects the
// waiters whose deadlines come before it. wait is the server's Retry-After.
func (g *gateMachine) scheduleProbe(now, wait time.Duration) {
	g.last = now
	g.due = clock.Later(now, max(g.probeGap(now), min(wait, maxShut)))
	g.rejectLate(now)
}

// probeGap returns the time from now until the next probe.
func (g *gateMachine) probeGap(now time.Duration) time.Duration {
	s := g.config.Probe
	if g.recovery == nil {
		return s.Delay(g.steps+1, 0, g.jitterSample())
	}
	jitter := s.Jitter
	s.Jitter = backoff.None
	step := s.Delay(g.steps+1, 0, 0)
	learned := min(max(g.recovery.Gap(now-g.since), step/2), clock.Later(step, step))
	if s.Cap > 0 {
		learned = min(learned, s.Cap)
	}
	return backoff.Schedule{Base: learned, Cap: s.Cap, Jitter: jitter}.Delay(1, 0, g.jitterSample())
}

// jitterSample returns a random number, or 0 if the schedule has no jitter.
func (g *gateMachine) jitterSample() uint64 {
	if !g.config.Probe.Random() {
		return 0
	}
	return g.random()
}

// expectedRecovery returns the estimated median time until recovery; 0 without an
// estimate.
func (g *gateMachine) expectedRecovery(now time.Duration) time.Duration {
	if g.recovery == nil {
		return 0
	}
	return g.recovery.Predict(now - g.since).Median
}

// recordProbe handles the outcome of a probe that started during this closing.
func (g *gateMachine) recordProbe(now time.Duration, probe uint64, o Outcome) {
	current := g.probing && probe == g.probes
	switch {
	case g.state != GateClosed:
	case !o.failed() && o.Result != Canceled.Result:
		g.startRelease(now) // also after its timeout: a success is proof that the destination is back
	case !current:
	case o.failed():
		g.probing = false
		g.steps++
		g.scheduleProbe(now, o.Wait)
	default:
		// A canceled probe proves nothing. The next one is not due at once:
		// otherwise callers that give up one after the other would each send one.
		g.probing = false
		g.due = max(now, clock.Later(g.began, g.probeGap(now)))
		g.rejectLate(now)
	}
	g.advance(now)
}

// startRelease begins to let the waiting callers pass.
func (g *gateMachine) startRelease(now time.Duration) {
	g.lastOutage, g.lastGuess = now-g.since, g.predicted
	if g.recovery != nil {
		g.recovery.Observe(g.last-g.since, now-g.since)
	}
	g.failures.Store(0)
	g.state, g.probing = GateReleasing, false
	g.due, g.end = now, clock.Later(now, g.config.Release)
	g.advance(now)
}

// nextDue returns when the state changes next if no outcome is reported: a probe
// becomes due or times out, or a waiter is released. ok is false if no caller waits.
func (g *gateMachine) nextDue() (at time.Duration, ok bool) {
	switch {
	case len(g.turns) == 0 || g.state == GateOpen:
		return 0, false
	case g.probing:
		return clock.Later(g.began, g.config.ProbeTimeout), true
	default:
		return g.due, true
	}
}

// advance performs everything that is due: it expires a probe, starts the next
// one, and releases waiters.
func (g *gateMachine) advance(now time.Duration) {
	switch g.state {
	case GateOpen:
	case GateClosed:
		if expiry := clock.Later(g.began, g.config.ProbeTimeout); g.probing && now >= expiry {
			g.probing = false
			g.steps++
			g.scheduleProbe(expiry, 0)
		}
		if !g.probing && now >= g.due {
			if t := g.popWaiter(now); t != nil {
				t.finish(g.startProbe(now), nil)
			}
		}
	case GateReleasing:
		g.releaseDue(now)
	}
}

// releaseDue lets the due waiters pass. It divides the rest of the release time
// evenly among the remaining waiters, including new ones, so that no caller waits
// beyond the end of the release time.
func (g *gateMachine) releaseDue(now time.Duration) {
	for len(g.turns) > 0 && now >= g.due {
		t := g.popWaiter(now)
		if t == nil {
			break
		}
		t.finish(Pass{gate: g.gate, closing: g.word.Load() >> 1}, nil)
		if n := len(g.turns); n > 0 {
			g.due += max(g.end-g.due, 0) / time.Duration(n)
		}
	}
	if len(g.turns) == 0 {
		g.state = GateOpen
		g.word.And(^uint64(shut))
	}
}

// popWaiter removes and returns the most urgent waiter whose deadline has not
// passed; nil if there is none. It rejects the waiters that are too late.
func (g *gateMachine) popWaiter(now time.Duration) *Turn {
	if len(g.turns) == 0 {
		return nil
	}
	w := g.queue.ReleaseAt(now) // the popped waiter's permit replaces the gate's own
	if w == nil {
		g.queue.TryAcquire()
		for _, t := range g.turns {
			g.rejectWaiter(t, context.DeadlineExceeded)
		}
		return nil
	}
	t := g.turns[w]
	delete(g.turns, w)
	return t
}

// startProbe returns the pass of a new probe.
func (g *gateMachine) startProbe(now time.Duration) Pass {
	g.probes++
	g.probing, g.began = true, now
	return Pass{gate: g.gate, closing: g.word.Load() >> 1, probe: g.probes}
}

// admit returns a pass for a new caller that need not wait. Call advance first, so
// that waiters that are due go before it.
func (g *gateMachine) admit(now time.Duration) (Pass, bool) {
	switch {
	case g.state == GateOpen:
		return Pass{gate: g.gate, closing: g.word.Load() >> 1}, true
	case g.state == GateClosed && !g.probing && now >= g.due:
		return g.startProbe(now), true
	}
	return Pass{}, false
}

// deadlineError returns a [*ClosedError] if the gate cannot open before the
// deadline, else nil. A deadline of 0 means none.
func (g *gateMachine) deadlineError(now, deadline time.Duration) error {
	if deadline == 0 || g.state != GateClosed || g.probing || deadline > g.due {
		return nil
	}
	return &ClosedError{Next: max(g.due-now, 0), Expected: g.expectedRecovery(now), Within: max(deadline-now, 0)}
}

// rejectLate rejects the waiters whose deadlines come before the next probe.
func (g *gateMachine) rejectLate(now time.Duration) {
	for _, t := range g.turns {
		if err := g.deadlineError(now, t.deadline); err != nil {
			g.rejectWaiter(t, err)
		}
	}
}

// rejectWaiter removes a waiter from the queue and ends its wait with the error.
func (g *gateMachine) rejectWaiter(t *Turn, err error) {
	g.queue.Cancel(t.waiter)
	delete(g.turns, t.waiter)
	t.finish(Pass{}, err)
}
