package health

import (
	"context"
	"fmt"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// Pass is the permission to make one call. Its holder must report the outcome
// with [Pass.Done]. A pass that is never reported counts neither as success nor
// as failure; if it is the prober's, the other callers wait until
// GateConfig.ProbeTimeout. The zero Pass ignores reports.
type Pass struct {
	gate    *Gate
	closing uint64 // how often the gate had closed when the pass was issued
	probe   uint64 // the probe's number; 0 means that the call is no probe
}

// Probe reports whether the call is a probe: the other callers wait for its
// outcome, so give it a short timeout.
func (p Pass) Probe() bool { return p.probe != 0 }

// Done reports the outcome of the call. A call that its own caller canceled
// counts neither as success nor as failure; if it was a probe, the next one is
// due when it would be after a failed probe.
func (p Pass) Done(o Outcome) {
	if p.gate == nil || p.changesNothing(o) {
		return
	}
	p.DoneAt(clock.Now(), o)
}

// changesNothing reports whether the outcome leaves the state as it is: a
// success while no failure is counted. Nearly all calls end this way, without a
// lock and without reading the clock.
func (p Pass) changesNothing(o Outcome) bool {
	return p.probe == 0 && (o.Result == breaker.Canceled || o.Result == breaker.Success && p.gate.failures.Load() == 0)
}

// DoneAt is [Pass.Done] at the time now.
func (p Pass) DoneAt(now time.Duration, o Outcome) {
	g := p.gate
	if g == nil || p.changesNothing(o) {
		return
	}
	g.mu.Lock()
	defer g.unlock(now)
	switch {
	case p.closing != g.word.Load()>>1: // the call began before the gate closed last: its outcome is out of date
	case p.probe != 0:
		g.recordProbe(now, p.probe, o)
	case g.state == GateClosed:
	case !o.failed():
		g.failures.Store(0)
	case g.failures.Add(1) >= int64(g.config.Failures):
		g.close(now, o.Wait)
	}
}

// Turn is a caller that has entered a gate with [Gate.EnterAt], for simulators
// and event loops. It may be waiting.
type Turn struct {
	gate     *Gate
	waiter   *limit.Waiter
	deadline time.Duration // 0 means none
	ready    chan struct{} // closed when the wait is over; nil for EnterAt
	over     bool
	pass     Pass
	err      error
}

// Result returns how the wait ended: with a pass, or with an error. over is
// false while the caller waits.
func (t *Turn) Result() (pass Pass, over bool, err error) {
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	return t.pass, t.over, t.err
}

// finish ends the wait. The caller holds the lock and has removed the turn.
func (t *Turn) finish(pass Pass, err error) {
	t.over, t.pass, t.err = true, pass, err
	if t.ready != nil {
		close(t.ready)
	}
}

// EnterAt enters the gate at the time now, without blocking; see [Gate.Enter].
// Both times are since any fixed origin; a deadline of 0 means none. The
// returned turn may already be over; if it is not, a later call of AdvanceAt,
// DoneAt, LeaveAt or EnterAt ends it.
func (g *Gate) EnterAt(now time.Duration, p limit.Priority, deadline time.Duration) (*Turn, error) {
	return g.enterOrQueue(now, p, deadline, nil)
}

// enterOrQueue returns a turn that has a pass, or waits in the queue. ready is
// closed when the wait ends; it may be nil.
func (g *Gate) enterOrQueue(now time.Duration, p limit.Priority, deadline time.Duration, ready chan struct{}) (*Turn, error) {
	g.mu.Lock()
	defer g.unlock(now)
	g.advance(now)
	t := &Turn{gate: g, deadline: deadline, ready: ready}
	if pass, ok := g.admit(now); ok {
		t.finish(pass, nil)
		return t, nil
	}
	if err := g.deadlineError(now, deadline); err != nil {
		return nil, err
	}
	w, shed, err := g.queue.EnqueueAt(now, p, deadline)
	if err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	t.waiter = w
	g.turns[w] = t
	if shed != nil {
		g.rejectWaiter(g.turns[shed], limit.ErrShed)
	}
	return t, nil
}

// LeaveAt removes a caller that gives up waiting. It returns false if the wait
// was over already; if the turn then has a pass, the caller must report it.
func (g *Gate) LeaveAt(now time.Duration, t *Turn) bool {
	g.mu.Lock()
	defer g.unlock(now)
	if t.over {
		return false
	}
	g.rejectWaiter(t, context.Canceled)
	g.advance(now)
	return true
}

// AdvanceAt lets the next prober, or the waiters that are due, pass.
// [Gate.NextAt] returns when to call it.
func (g *Gate) AdvanceAt(now time.Duration) {
	g.mu.Lock()
	defer g.unlock(now)
	g.advance(now)
}

// NextAt returns when [Gate.AdvanceAt] must be called next; ok is false if no
// caller waits.
func (g *Gate) NextAt() (at time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.nextDue()
}
