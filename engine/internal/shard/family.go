package shard

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// families does what follows for the children and the parent of a run.
type families struct {
	settings *Settings
	shards   int // number of all shards
	health   *health
	stuck    *stuckHandlers
	calls    *flow.Calls
}

// childStarted records that a child was started in another shard, so that it is not started again
// when it is not stored any more. If its parent has ended meanwhile, the child is canceled: the
// cancellation may have come to the other shard before the start.
func (f *families) childStarted(t Recorder, parent machine.Parent, c machine.Child) {
	run, err := t.State().Read(parent.Run)
	if rec, ok := t.State().StartChild(parent, c.ID, t.Now()); ok {
		t.Record(rec)
	}
	if c.Detached || err == nil && run.Outcome == machine.Undecided && !run.Flow().IsUndoing() {
		return
	}
	f.cancelElsewhere(t, parent.Run, c, "its parent "+parent.Run.String())
}

// inform does what follows from the end of a run: it cancels its children, and tells its
// parent. If another run continues it, that one tells the parent.
func (f *families) inform(t Recorder, id machine.ID) {
	run, err := t.State().Read(id)
	if err != nil {
		f.health.broken(err)
		return
	}
	if run.Outcome == machine.Undecided {
		return
	}
	f.cancelChildren(t, run)
	if p := run.Parent(); !p.Run.IsZero() && !p.Told {
		f.tellParent(t, run)
	}
}

// cancelChildren cancels the children of a run that has ended, or undoes its operations.
func (f *families) cancelChildren(t Recorder, run *machine.Run) {
	for _, c := range run.Flow().Children() {
		if !c.Detached {
			f.cancelChild(t, run, c)
		}
	}
}

// cancelChild cancels a child of a run.
func (f *families) cancelChild(t Recorder, run *machine.Run, c machine.Child) {
	by := "its parent " + run.ID.String()
	for id := c.ID; ; {
		child, here := t.State().Run(id)
		switch {
		case !here:
			f.cancelElsewhere(t, run.ID, c, by)
		case child.Continued():
			id = child.ReplacedBy()
			continue
		case child.Outcome == machine.Undecided:
			rec, err := t.State().Cancel(id, by, t.Now())
			if err == nil {
				t.Record(rec)
			}
		}
		return
	}
}

// cancelElsewhere cancels a child in another shard.
func (f *families) cancelElsewhere(t Recorder, parent machine.ID, c machine.Child, by string) {
	never := &machine.ChildEnd{
		Parent: machine.Parent{Run: parent, Number: c.Number}, Child: c.Run(), Reason: retry.StopCanceled, Code: "canceled", Text: "it was not started",
	}
	t.Deliver(&Delivery{
		Kind: CancelChild, Shard: c.ID.Slot() % f.shards, Run: c.ID, Former: c.Run(), Parent: never.Parent, By: by,
		done: func(t Recorder, _ error) { f.endChild(t, never) },
	})
}

// tellParent tells the parent of a run that the run has ended.
func (f *families) tellParent(t Recorder, run *machine.Run) {
	end := f.endOfChild(run)
	if _, here := t.State().Run(end.Parent.Run); here {
		f.endChild(t, end)
		t.Record(machine.TellParent(run, t.Now()))
		return
	}
	text, err := json.Marshal(end)
	if err != nil {
		f.health.broken(err)
		return
	}
	id := run.ID
	t.Deliver(&Delivery{
		Kind: ChildHasEnded, Shard: end.Parent.Run.Slot() % f.shards, Run: end.Parent.Run, End: text,
		done: func(t Recorder, err error) {
			if err != nil && !errors.Is(err, machine.ErrUnknown) {
				f.settings.Logger.Error("the end of a run can't be told to its parent", "run", id, "parent", end.Parent.Run, "error", err)
			}
			if run, ok := t.State().Run(id); ok && !run.Parent().Told {
				t.Record(machine.TellParent(run, t.Now()))
			}
		},
	})
}

// endOfChild returns how a run has ended, for its parent.
func (f *families) endOfChild(run *machine.Run) *machine.ChildEnd {
	end := machine.EndOfChild(run)
	if n := len(end.Output); n > f.settings.MaxPayload { // of several steps together
		end.Reason, end.Code, end.Output = retry.StopPermanent, "too-large", nil
		end.Text = fmt.Sprintf("run %s succeeded, but its output has %d bytes, and a parent can get at most %d", run.ID, n, f.settings.MaxPayload)
	}
	return end
}

// endChild records the end of a child in its parent, if an operation of the parent waits for it.
func (f *families) endChild(t Recorder, end *machine.ChildEnd) {
	rec, ok, err := t.State().EndChild(end, t.Now())
	switch {
	case errors.Is(err, machine.ErrUnknown): // the parent is not kept any more
	case err != nil:
		f.health.broken(err)
	case ok:
		t.Record(rec)
		f.calls.Signaled(t, rec.Run, &rec)
	}
}

// adopt records that the operation waits for the run, unless the run has ended. next is the run that
// has replaced or continued this one; zero for none.
func (f *families) adopt(t Recorder, run *machine.Run, parent machine.Parent, by string, a *flow.AdoptedChild) (next machine.ID, err error) {
	switch p := run.Parent(); {
	case p.Run == parent.Run && p.Number == parent.Number: // by an earlier call
		a.Run = run.ID.String()
		return next, nil
	case run.Outcome != machine.Undecided && !run.Closed():
		return next, fmt.Errorf("%w: an attempt of run %s is still being stopped", ErrBusy, run.ID)
	case run.Outcome == machine.Dead && run.ReplacedBy().IsZero():
		if err := f.stuck.check(run.ID); err != nil {
			return next, err
		}
		rec, err := t.State().Retry(run.ID, by, t.Now())
		if err != nil {
			return next, fmt.Errorf("%w: %w", ErrBusy, err) // its children are being canceled
		}
		t.Record(rec)
	case run.Outcome != machine.Undecided:
		return f.formerEnd(run, parent, a), nil
	}
	t.Record(machine.AdoptRun(run, parent, t.Now()))
	a.Run = run.ID.String()
	return next, nil
}

// formerEnd sets what became of a run that has ended for good. next is the run that has replaced or
// continued it; zero for none.
func (f *families) formerEnd(run *machine.Run, parent machine.Parent, a *flow.AdoptedChild) (next machine.ID) {
	if next = run.ReplacedBy(); !next.IsZero() {
		return next
	}
	a.Undos = machine.AllUndos(run)
	if run.Outcome == machine.Succeeded {
		a.End = f.endOfChild(run)
		a.End.Parent = parent
	}
	return next
}
