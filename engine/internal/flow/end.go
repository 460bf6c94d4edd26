package flow

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// endCall records the end of a call.
func (a *Calls) endCall(t Turn, c *call) {
	end := &c.end
	if end.result != nil && end.result.Outcome.Class == retry.ClassStuck {
		t.NoteStuck(c.run, c.number)
	}
	if a.running[c.run] != c {
		return
	}
	run, ok := t.State().Run(c.run)
	a.forget(c)
	if !ok {
		return
	}
	if run.Outcome == machine.Undecided {
		a.recordStatus(t, c, run)
		if run.Flow().IsUndoing() && end.forgetsUndo() {
			*end = callEnd{result: &machine.Result{Release: true, Error: ErrUndoing.Error()}}
		}
	} else if end.result == nil {
		end.result = &machine.Result{}
		finish(t, c)
		return
	}
	if end.again != nil && run.Flow().Undoable() > 0 && !end.keepDone {
		end.mismatch = fmt.Sprintf("again: the run has called operations that can be undone (%s), and the run that continues it can't undo them: call them in a child, or give up their undos by engine.Again(f, input, engine.KeepDone())", cmp.Or(end.undoable, strconv.Itoa(run.Flow().Undoable())))
	}
	a.recordEnd(t, c, run)
}

// recordEnd records the end of a call whose run is not over, or has waited for it.
func (a *Calls) recordEnd(t Turn, c *call, run *machine.Run) {
	switch end := &c.end; {
	case end.mismatch != "":
		a.park(t, c, run, end.mismatch)
	case a.settings.Replay != nil:
		a.settings.report(verdictOf(end))
	case end.undone != nil:
		if run.Flow().IsUndoing() && run.Outcome == machine.Undecided {
			t.Record(machine.EndUndo(run, a.settings.ErrorText(end.undone.text), end.undone.redo, t.Now()))
		}
	case end.again != nil:
		continueAs(t, run, c.workflow, end.again)
	default:
		finish(t, c)
	}
}

// finish records the result of a call.
func finish(t Turn, c *call) {
	c.end.result.Run, c.end.result.Attempt = c.run, c.number
	if rec, ok := Finish(t, c.end.result); ok {
		t.Record(rec)
	}
}

// Finish returns the record of the result of an attempt or a call. These may have ended after the turn began,
// and the wait after a failure must not begin before its end.
func Finish(t Turn, r *machine.Result) (rec machine.Record, ok bool) {
	if !r.Succeeded() {
		t.ReadClock()
	}
	return t.State().Finish(r, t.Now(), t.Random())
}

// continueAs ends the run, and starts another run with the input. If the workflow is not known any
// more, the other run has the definition of this one.
func continueAs(t Turn, run *machine.Run, w *workflow.Workflow, input []byte) {
	def := w.Def
	if w.IsStandIn() {
		def = run.Def
	}
	next := &machine.Start{
		ID: t.NewID(run.Key), Hash: def.Hash(), Input: input, Key: run.Key,
		Source: "continues " + run.ID.String(), Continues: run.ID, Trace: machine.Trace(run), Inbox: run.Flow().Inbox(), Parent: run.Parent(),
		Timeout: machine.OwnTimeout(run),
	}
	t.RecordStart(machine.ContinueAs(run, next.ID, t.Now()), next, def)
}

// failures returns the numbers of the failed operations that made the function return the error:
// a retry of the run executes them again. If the error wraps no failure of an operation, these are
// the failures of the operation that the function called last. The reason is that of the first one.
func (f *Flow) failures(err error) (numbers []int, reason retry.Reason) {
	failed := map[string]bool{}
	addFailed(failed, err)
	first := &machine.OpResult{Number: math.MaxInt}
	for _, res := range f.ended.all {
		name := machine.OpName(res.Name)
		of, _ := machine.CutIndex(name)
		if res.Reason != 0 && (failed[name] || len(failed) == 0 && of == machine.OpName(f.last)) {
			numbers = append(numbers, res.Number)
			if res.Number < first.Number {
				first = res
			}
		}
	}
	slices.Sort(numbers)
	return numbers, reasonOf(first)
}

// reasonOf returns why an operation gave up, if its policy or the engine decided that; 0 if the reason is another
// one.
func reasonOf(res *machine.OpResult) retry.Reason {
	if machine.OpKindOf(res.Name).Waits != machine.ForChild && slices.Contains(ownReasons, res.Reason) { // those of a child are those of another run
		return res.Reason
	}
	return 0
}

// ownReasons are the reasons of which the policy of an operation or the engine decides.
var ownReasons = []retry.Reason{retry.StopAttempts, retry.StopTotalTimeout, retry.StopServerWait, retry.StopStuck, retry.StopLost, retry.StopWindows}

// addFailed adds the names of all failed operations whose errors err wraps.
func addFailed(names map[string]bool, err error) {
	switch e := err.(type) { //nolint:errorlint // it follows the tree of errors itself
	case *info.OpError:
		names[e.Name] = true
	case interface{ Unwrap() error }:
		addFailed(names, e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			addFailed(names, err)
		}
	}
}

// forgetsUndo reports whether the function has returned before it knew that the run undoes its
// operations: it has to be called again.
func (e *callEnd) forgetsUndo() bool {
	return e.undone == nil && e.mismatch == "" && (e.again != nil || e.isError || e.result.Succeeded())
}

var ErrUndoing = errors.New("the run undoes its operations")

// verdictOf returns the verdict about a run whose function has ended.
func verdictOf(end *callEnd) (v replay.Verdict) {
	switch {
	case end.undone != nil:
		v.Error = end.undone.text
	case end.again != nil, !end.result.Failed && !end.result.Release:
	case end.isError:
		v.Error = end.result.Error
	default:
		v.Failed = end.result.Error
	}
	return v
}

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
	case op.kind.Waits == machine.ForSignal && !c.isProbe && a.staysForSignal(c, now), s == nil:
		return false
	case s.Status == machine.Blocked: // it waits for a signal without a limit, or for a child
		return true
	case s.Status != machine.Waiting:
		return false
	case op.kind.Waits == machine.ForAttempts && run.Pause() != nil: // it begins when the workflow is resumed
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
	t.Record(machine.Suspend(run, c.mustEnd(), t.Now()))
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

// isHeldBack reports whether the group is not begun, because the engine only replays a run. A wait for
// a time has no effect, and its result is known.
func (a *Calls) isHeldBack(g *Group) bool {
	return a.settings.Replay != nil && g.kind.Waits != machine.ForTime
}

// heldBack returns the names of the operations that the function waits for and that are held back;
// nil if there are none.
func (a *Calls) heldBack(c *call) (names []string) {
	for _, g := range slices.Backward(c.groups) {
		switch {
		case !a.isHeldBack(g):
		case g.isUndo():
			names = append(names, g.Name)
		default:
			names = append(names, machine.OpName(g.Name))
		}
	}
	return names
}

// errSuspended stops a call whose function waits for operations with long waits.
var errSuspended = errors.New("the function is suspended")
