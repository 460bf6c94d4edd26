package health

import (
	"context"
	"fmt"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// Pass is the leave to make one call. Its holder reports with [Pass.Done] what
// became of it. A pass that is never reported counts nothing; if it is a
// prober's, it holds the others up until GateConfig.ProbeTimeout. The zero Pass
// ignores reports.
type Pass struct {
	gate    *Gate
	closing uint64 // how often the gate had closed
	probe   uint64 // the probe's number; 0 means that it is none
}

// Probe reports whether the call is the one that finds out for all whether the
// destination is back. It deserves a timeout that is not long.
func (p Pass) Probe() bool { return p.probe != 0 }

// Done reports what became of the call. A call that its own caller canceled says
// nothing; if it was a probe the next one is due when it would have been after a
// failure.
func (p Pass) Done(o Outcome) {
	if p.gate == nil || p.idle(o) {
		return
	}
	p.DoneAt(clock.Now(), o)
}

// idle reports whether the outcome changes nothing: a success where there was no
// failure. It is what nearly all calls come to, and costs no lock and no clock.
func (p Pass) idle(o Outcome) bool {
	return p.probe == 0 && (o.Result == breaker.Canceled || o.Result == breaker.Success && p.gate.failures.Load() == 0)
}

// DoneAt is [Pass.Done] at the time now.
func (p Pass) DoneAt(now time.Duration, o Outcome) {
	g := p.gate
	if g == nil || p.idle(o) {
		return
	}
	g.mu.Lock()
	defer g.unlock(now)
	switch {
	case p.closing != g.word.Load()>>1: // began before the gate closed last: old news
	case p.probe != 0:
		g.probed(now, p.probe, o)
	case g.state == GateClosed:
	case !o.failed():
		g.failures.Store(0)
	case g.failures.Add(1) >= int64(g.config.Failures):
		g.close(now, o.Wait)
	}
}

// Turn is a caller at a gate, for simulators and event loops: what
// [Gate.Enter] has while it blocks.
type Turn struct {
	gate     *Gate
	waiter   *limit.Waiter
	deadline time.Duration // 0 means none
	ready    chan struct{} // closed when the wait is over; nil if nobody blocks on it
	over     bool
	pass     Pass
	err      error
}

// Result returns how the wait ended; over is false while it has not.
func (t *Turn) Result() (pass Pass, over bool, err error) {
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	return t.pass, t.over, t.err
}

// settle ends the wait. The caller holds the lock and has removed the turn.
func (t *Turn) settle(pass Pass, err error) {
	t.over, t.pass, t.err = true, pass, err
	if t.ready != nil {
		close(t.ready)
	}
}

// EnterAt is what [Gate.Enter] does before it waits. The time now and the
// deadline are since any fixed origin; a deadline of 0 means none. The turn may
// be over already; if it is not, later calls of AdvanceAt, DoneAt, LeaveAt and
// EnterAt end it.
func (g *Gate) EnterAt(now time.Duration, p limit.Priority, deadline time.Duration) (*Turn, error) {
	return g.enter(now, p, deadline, nil)
}

func (g *Gate) enter(now time.Duration, p limit.Priority, deadline time.Duration, ready chan struct{}) (*Turn, error) {
	g.mu.Lock()
	defer g.unlock(now)
	g.advance(now)
	t := &Turn{gate: g, deadline: deadline, ready: ready}
	if pass, ok := g.admit(now); ok {
		t.settle(pass, nil)
		return t, nil
	}
	if err := g.hopeless(now, deadline); err != nil {
		return nil, err
	}
	w, shed, err := g.line.EnqueueAt(now, p, deadline)
	if err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	t.waiter = w
	g.turns[w] = t
	if shed != nil {
		g.remove(g.turns[shed], limit.ErrShed)
	}
	return t, nil
}

// LeaveAt takes a caller out that no longer wants to wait. It returns false if
// the wait was over already; a caller that was let through then has its pass and
// must report it.
func (g *Gate) LeaveAt(now time.Duration, t *Turn) bool {
	g.mu.Lock()
	defer g.unlock(now)
	if t.over {
		return false
	}
	g.remove(t, context.Canceled)
	g.advance(now)
	return true
}

// AdvanceAt does what is due: it lets the next prober or the next waiters
// through. [Gate.NextAt] says when to call it.
func (g *Gate) AdvanceAt(now time.Duration) {
	g.mu.Lock()
	defer g.unlock(now)
	g.advance(now)
}

// NextAt returns when [Gate.AdvanceAt] has something to do, false if nobody
// waits for anything.
func (g *Gate) NextAt() (at time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next()
}
