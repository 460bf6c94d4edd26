package flow

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/tideover/tideover/engine/internal/machine"
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
