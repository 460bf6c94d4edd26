package flow

import (
	"math"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
)

// SuspendAfter is how long all operations that a function waits for must have to wait, at least,
// for the call of the function to end until then.
const SuspendAfter = time.Second

// suspendIdle ends the call of a function if it and all its branches wait for operations, and all
// these have to wait for long.
func (a *Calls) suspendIdle(t Turn, c *call, run *machine.Run) {
	if c.starting > 0 || !c.waits() {
		return
	}
	if next := a.heldBack(c); next != nil {
		a.suspend(t, c, run)
		a.settings.report(replay.Verdict{Next: next})
		return
	}
	for number, op := range c.ops.all {
		if !a.waitsLong(c, run, number, op, t.Now()) {
			return
		}
	}
	a.suspend(t, c, run)
}

// waitsLong reports whether an operation has to wait for so long that its function is suspended.
func (a *Calls) waitsLong(c *call, run *machine.Run, number int, op Operation, now int64) bool {
	s := run.Step(number)
	switch {
	case op.isAwait && !c.isProbe && a.staysForSignal(c, now), s == nil:
		return false
	case s.Status == machine.Blocked: // it waits for a signal without a limit, or for a child
		return true
	case s.Status != machine.Waiting:
		return false
	case op.def != nil && run.Pause() != nil: // it begins when the workflow is resumed
		return true
	}
	return !run.InQueue(number) && s.At-now >= int64(SuspendAfter)
}

// suspend ends the call of a function that waits for operations.
func (a *Calls) suspend(t Turn, c *call, run *machine.Run) {
	if wrong := c.firstWrong(); wrong != nil {
		a.drop(c, errSuspended)
		a.park(t, c, run, wrong.Error())
		return
	}
	t.Record(machine.Suspend(run, c.awaited(), t.Now()))
	a.drop(c, errSuspended)
	if r := a.settings.Registry; c.known != r.Version() && r.Function(c.handler(), run.Def.Name) != c.workflow {
		t.State().CallAgain(run) // other code is deployed, and callChanged may have passed the run
	}
}

// LeaveStuck suspends the function whose goroutine makes an attempt of the operation, which is stuck: the
// function is called again in another goroutine.
func (a *Calls) LeaveStuck(t Turn, op Operation) {
	if !op.IsInline() {
		return
	}
	c := op.message.call
	if run, ok := t.State().Run(c.run); ok && a.running[c.run] == c && run.Outcome == machine.Undecided {
		a.suspend(t, c, run)
	}
}

// staysForSignal reports whether the signal that a call waits for may still come soon. So the call is suspended
// after SuspendAfter only, unless many other functions are running.
func (a *Calls) staysForSignal(c *call, now int64) bool {
	switch {
	case c.signalUntil != 0:
		return now < c.signalUntil
	case a.settings.Admission.FewCalls():
		return false
	}
	c.signalUntil = now + int64(SuspendAfter)
	a.waits = append(a.waits, signalWait{c, c.signalUntil})
	return true
}

// NextDue returns when SuspendDue must be called next, in Unix nanoseconds.
func (a *Calls) NextDue() int64 {
	if len(a.waits) == 0 {
		return math.MaxInt64
	}
	return a.waits[0].until
}

// SuspendDue suspends the calls that have waited for a signal for long enough.
func (a *Calls) SuspendDue(t Turn) {
	for now := t.Now(); a.NextDue() <= now; {
		c := a.waits[0]
		a.waits[0] = signalWait{}
		a.waits = a.waits[1:]
		run, ok := t.State().Run(c.run)
		if ok && a.running[c.run] == c.call && c.signalUntil == c.until && run.Outcome == machine.Undecided {
			a.suspendIdle(t, c.call, run)
		}
	}
}

// SuspendPaused ends the calls of functions of a paused workflow that only wait for operations: those
// do not begin before the workflow is resumed, and calls of functions are limited.
func (a *Calls) SuspendPaused(t Turn, workflow string) {
	for id, c := range a.running {
		if run, ok := t.State().Run(id); ok && !c.stopping && run.Def.Name == workflow && run.Outcome == machine.Undecided {
			a.suspendIdle(t, c, run)
		}
	}
}

// isHeldBack reports whether the group is not begun, because the engine only replays a run. A sleep
// has no effect, and its result is known.
func (a *Calls) isHeldBack(g *Group) bool {
	return a.settings.Replay != nil && (g.def != nil || g.isAwait || g.child != nil)
}

// heldBack returns the names of the operations that the function waits for and that are held back;
// nil if there are none.
func (a *Calls) heldBack(c *call) (names []string) {
	for _, g := range slices.Backward(c.groups) {
		switch {
		case !a.isHeldBack(g):
		case g.isUndo:
			names = append(names, g.Name)
		default:
			names = append(names, machine.OpName(g.Name))
		}
	}
	return names
}
