package machine

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// applyFlow applies a record of a flow, which may be the child of another run.
func applyFlow(m *state, r *Run, rec *Record) {
	switch rec.Kind { //nolint:exhaustive // the others are applied elsewhere
	case Suspended:
		applySuspended(m, r, rec)
	case Described:
		applyDescribed(r.flow, rec)
	case Signaled:
		applySignaled(m, r, rec)
	case NoSignal:
		endOp(m, r, rec)
	case ChildEnded:
		applyChildEnded(m, r, rec)
	case Adopted:
		m.adopted = true
		r.more().parent = &Parent{Run: rec.other, Number: rec.count}
	case ParentTold:
		parentTold(r)
		retireUnneeded(m, r, rec.At)
	case Undoing:
		applyUndoing(m, r, rec)
	case Undone:
		applyUndone(m, r, rec)
	case Continued:
		endAttempt(m, r, 0)
		r.Steps[0].Status = Complete
		r.done++
		r.more().replacedBy = rec.other
		parentTold(r) // the next run tells the parent
		m.setOutcome(r, Succeeded, 0, rec.At)
	}
}

// applyCalled adds an operation to the run.
func applyCalled(m *state, r *Run, rec *Record) error {
	f := r.flow
	if f == nil || rec.Step != int(f.count)+1 {
		return fmt.Errorf("%w: run %s calls an operation with the number %d", ErrEncoding, rec.Run, rec.Step)
	}
	f.count++
	f.undoable += int32(rec.count)
	if rec.Data != nil {
		addResult(f, &OpResult{Number: rec.Step, Name: rec.Text, Began: rec.At, Ended: rec.At, Data: rec.Data})
		return nil
	}
	if signal, isAwait := awaited(rec.Text); isAwait {
		if s, ok := f.inbox.take(signal); ok {
			addResult(f, &OpResult{Number: rec.Step, Name: rec.Text, Began: rec.At, Ended: rec.At, Data: s.data})
			return nil
		}
	}
	o := op{name: rec.Text, number: int32(rec.Step)}
	if about := partOf(rec.outputs, 0); about != nil {
		o.progress = bytes.Clone(about)
		if isQuestion(o.name) {
			said := r.flow.described()
			said.tags = cmp.Or(said.tags, "{}") // the view has a tag for a question, which it must be able to remove
			f.about = &said
		}
	}
	due := rec.Due
	if rec.Hash != (Hash{}) {
		d, ok := m.defs[rec.Hash]
		if !ok {
			return fmt.Errorf("%w: an operation of run %s has an unknown definition", ErrEncoding, rec.Run)
		}
		o.def, due = d, rec.At
	}
	f.ops = append(f.ops, o)
	r.Steps = append(r.Steps, StepState{timer: noTimer})
	if rec.Begins() {
		applyBegun(m, r, rec)
	} else if due != 0 { // else it waits, as Blocked, for a signal or its child only
		m.wait(r, rec.Step, due)
	}
	return nil
}

// endOp keeps the result of an operation that has ended, and removes its step.
func endOp(m *state, r *Run, rec *Record) {
	f, s := r.flow, r.Step(rec.Step)
	o := OpResult{
		Number: rec.Step, Name: r.flow.Identity(rec.Step), Attempts: int(s.Attempt), Spent: int(s.Spent), Began: cmp.Or(s.First, rec.At), Ended: rec.At,
		Reason: rec.Reason,
	}
	o.Data, o.Code, o.Text = rec.OpOutcome()
	if c, ok := f.ops[f.index(rec.Step)].child(); ok {
		former := c.after(rec.other, rec.count)
		switch {
		case rec.Reason != 0:
			o.Data = former.append(nil)
		case former.Origin != c.ID || former.Undos > 0: // else it follows from the number of the operation
			addFormer(f, map[string][]byte{FormerKind + ":" + OpName(o.Name): former.append(nil)})
		}
	}
	addResult(f, &o)
	removeOp(m, r, rec.Step)
	function := &r.Steps[0]
	m.resetLosses(r, 0, function, func(s *StepState) { s.Lost = 0 }) // the function has made progress
	if f.mustEnd--; f.mustEnd <= 0 && function.Status == Blocked {
		m.wait(r, 0, rec.At)
	}
}

// removeOp removes the step of an operation.
func removeOp(m *state, r *Run, n int) {
	m.timers.unset(r, int32(n))
	m.dequeue(r, n)
	f := r.flow
	i := f.index(n)
	f.ops = slices.Delete(f.ops, i, i+1)
	r.Steps = slices.Delete(r.Steps, i+1, i+2)
}

// applySuspended ends the call of the function until enough operations have ended.
func applySuspended(m *state, r *Run, rec *Record) {
	s := &r.Steps[0]
	endAttempt(m, r, 0)
	s.Status = Blocked
	s.recount()
	r.flow.mustEnd = int32(rec.count)
	f := r.flow
	f.ops, r.Steps = shrunk(f.ops), shrunk(r.Steps) // a Map may have made them long
	f.results, r.History = shrunk(f.results), shrunk(r.History)
}

// shrunk returns the slice without the memory that it does not use, if that is much: there may be
// many suspended runs. A long slice is copied only if it uses less than half of its memory, because
// a run may be suspended often.
func shrunk[T any](s []T) []T {
	unused := cap(s) - len(s)
	if unused <= len(s)/8 || len(s) > 4096 && unused <= len(s) {
		return s
	}
	return append([]T(nil), s...)
}

// retryFlow forgets the failures that made the function give up, and makes the function due. If
// the record has a definition, the run continues with that one.
func retryFlow(m *state, r *Run, rec *Record) {
	f := r.flow
	if d, ok := m.defs[rec.Hash]; ok && d != r.Def {
		r.Def.runs--
		r.Def = d
		d.runs++
		m.use(rec.Hash, rec.At)
	}
	redo := decodeRedo(f.redo)
	f.redo = nil
	keep := rec.count > 0
	m.adopted = m.adopted || keep
	forgetUndone(f, keep)
	forgetResults(f, keep, func(_ int, o *OpResult) bool {
		afterEnd := OpKindOf(o.Name).IsOptional || isChildOp(o.Name) && o.Reason != 0 && o.Code == parentEnded
		return redo[o.Number] || f.undo == nil && afterEnd
	})
}

// applyDescribed sets the status and the tags of the run. The old value is not changed, because a
// copy of the run may share it.
func applyDescribed(f *Flow, rec *Record) {
	next := about{rec.Text, f.described().tags}
	if rec.Data != nil {
		next.tags = string(rec.Data)
	}
	f.about = &next
}

// applyUndoing makes the run undo its operations. Those that have not ended fail, except attempts
// that are running and children that are to be canceled.
func applyUndoing(m *state, r *Run, rec *Record) {
	f := r.flow
	f.undo = &undo{outcome: Outcome(rec.count), reason: rec.Reason, redo: bytes.Clone(rec.Data), since: len(f.results)}
	if r.Outcome != Undecided { // by hand, of a dead run
		r.Outcome, r.Ended, r.retried = Undecided, 0, true
		f.undo.redo = f.redo
	}
	f.redo = nil
	if r.extra != nil {
		r.extra.until = 0
	}
	r.Reason, r.Failing, r.Held, r.Deadline = 0, false, false, 0
	m.timers.unset(r, deadline)
	var ends []Record
	for i := range f.ops {
		c, isChild := f.ops[i].child()
		if r.Steps[i+1].Status != Running && !isUndo(f.ops[i].name) && (!isChild || c.Detached) {
			// A detached child continues, and a retry of the run continues with it.
			ends = append(ends, canceledOpRecord(int(f.ops[i].number), c.Run(), rec.At))
		}
	}
	for i := range ends {
		endOp(m, r, &ends[i])
	}
	switch s := &r.Steps[0]; s.Status {
	case Exhausted, Complete:
		r.done = 0 // it may have returned before an operation had ended
		s.forgive()
		m.wait(r, 0, rec.At)
	case Blocked, Waiting:
		m.wait(r, 0, rec.At)
	case Running, NoHandler:
	}
}

// applyUndone ends the run.
func applyUndone(m *state, r *Run, rec *Record) {
	f, s := r.flow, &r.Steps[0]
	endAttempt(m, r, 0)
	s.Status = Exhausted
	if rec.Reason != 0 {
		f.redo = bytes.Clone(rec.Data)
		m.setOutcome(r, Dead, rec.Reason, rec.At)
		return
	}
	f.undo.done, f.redo = true, f.undo.redo
	m.setOutcome(r, f.undo.outcome, f.undo.reason, rec.At)
}

// applySignaled gives the signal to the operation that waits for it, or keeps it.
func applySignaled(m *state, r *Run, rec *Record) {
	f := r.flow
	if f.inbox == nil {
		f.inbox = new(inbox)
	}
	name, id, _ := rec.Signal()
	if id != "" {
		f.inbox.seen = append(f.inbox.seen, hashOf([]byte(id)))
	}
	if rec.Step > 0 {
		if rec.count > 0 {
			f.inbox.take(name)
		}
		endOp(m, r, rec)
		return
	}
	s := signal{name, bytes.Clone(rec.Data)}
	f.inbox.signals = append(f.inbox.signals, s)
	f.inbox.size += s.size()
}

// applyChildEnded ends the operation that waited for the child.
func applyChildEnded(m *state, r *Run, rec *Record) {
	end := *rec
	if r.Outcome != Undecided && rec.Reason != 0 {
		end.Data = []byte(parentEnded)
	}
	endOp(m, r, &end)
	retireUnneeded(m, r, rec.At)
}

// retireUnneeded is called when a reason is gone for which a run was needed.
func retireUnneeded(m *state, r *Run, at int64) {
	switch {
	case !r.Finished() || r.IsNeeded():
	case r.Continued():
		m.use(r.Def.hash, at)
	default:
		m.retire(r, at)
	}
}

// parentTold notes that the parent has been told.
func parentTold(r *Run) {
	if p := r.Parent(); !p.Run.IsZero() {
		p.Told = true
		r.more().parent = &p
	}
}
