package machine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

// A run whose function has called operations with an undo does not end at once when it fails or is
// canceled: first it is undoing. Its function is called, and calls one operation of UndoKind for
// each of them, in reverse order. Then the run gets its outcome.

// UndoKind is the kind, in the identity of an operation, of those that undo another one, whose name
// they have.
const UndoKind = "undo"

// undo says how a run ends that is undoing.
type undo struct {
	outcome Outcome
	reason  retry.Reason
	done    bool   // everything is undone: a retry of the run calls the operations again
	redo    []byte // the operations that a retry calls again then, beside those that were undone: see EncodeRedo
	since   int    // bytes of the results when the run began to undo
}

func isUndo(identity string) bool { return strings.HasPrefix(identity, UndoKind+":") }

// IsUndo reports whether a step undoes an operation. The run must not be cold.
func (r *Run) IsUndo(n int) bool { return r.flow != nil && n > 0 && isUndo(r.Identity(n)) }

// IsUndoing reports whether the run undoes its operations, or has tried to.
func (r *Run) IsUndoing() bool { return r.flow != nil && r.flow.undo != nil && !r.flow.undo.done }

// Undoable returns how many operations with an undo the run has called; 0 if they are undone. The
// run must be that of a flow.
func (r *Run) Undoable() int {
	if r.flow.undo != nil && r.flow.undo.done {
		return 0
	}
	return int(r.flow.undoable)
}

// Undos returns how often the operations of the run were undone and called again, with those of
// the runs that it repeats. The run must not be cold.
func (r *Run) Undos() int {
	if r.flow == nil {
		return 0
	}
	undos := 0
	if !r.Previous().IsZero() {
		_, _, undos, _ = r.chain()
	}
	return undos + int(r.flow.undos)
}

// AllUndos is Undos for a run that repeats this one: operations that were undone last count, too.
func (r *Run) AllUndos() int {
	n := r.Undos()
	if r.flow != nil && r.flow.undo != nil && r.flow.undo.done {
		n++
	}
	return n
}

// mustUndo reports whether the run has to undo operations before it ends.
func (r *Run) mustUndo() bool {
	return r.Outcome == Undecided && r.flow != nil && r.flow.undoable > 0 && r.flow.undo == nil
}

// undoingRecord returns the record that begins to undo the operations of the run. After that the run
// ends with the outcome.
func undoingRecord(r *Run, o Outcome, why retry.Reason, text string, now int64) Record {
	return Record{Kind: Undoing, Run: r.ID, At: now, Count: int(o), Reason: why, Text: text}
}

// Fail decides that the run undoes its operations, because its function has returned an error, as
// the result says.
func (c Commands) Fail(r *Run, res *Result, now int64) Record {
	rec := undoingRecord(r, Dead, cmp.Or(res.Reason, retry.StopPermanent), res.Error, now)
	rec.Data = res.Redo
	if res.Code != "" {
		rec.Outputs = [][]byte{[]byte(res.Code)}
	}
	return rec
}

// Undo decides that a dead run undoes its operations.
func (c Commands) Undo(id ID, by string, now int64) (rec Record, err error) {
	r, err := c.find(id)
	if err != nil {
		return rec, err
	}
	switch {
	case r.flow == nil || r.flow.undoable == 0:
		err = fmt.Errorf("%w: run %s has no operation that can be undone", ErrState, id)
	case r.flow.undo != nil && r.flow.undo.done:
		err = fmt.Errorf("%w: the operations of run %s are undone already", ErrState, id)
	case r.IsUndoing():
		err = fmt.Errorf("%w: run %s is %s; if it is dead, retry it", ErrState, id, r.State())
	case r.Outcome != Dead || !r.Closed() || !r.ReplacedBy().IsZero():
		err = fmt.Errorf("%w: run %s is %s, and only the operations of a dead one can be undone; cancel it", ErrState, id, r.State())
	}
	if err != nil {
		return rec, err
	}
	_, text, _ := r.Situation()
	return undoingRecord(r, Dead, r.Reason, text+"; undone by "+by, now), nil
}

// Abandon decides to end a run at once, without undoing its operations.
func (c Commands) Abandon(id ID, by string, now int64) (Record, error) {
	r, err := c.find(id)
	if err == nil && (r.Outcome == Succeeded || r.Outcome == Canceled || r.Finished()) {
		err = fmt.Errorf("%w: run %s is %s, and can't be abandoned", ErrState, id, r.State())
	}
	return Record{Kind: Cancel, Run: id, At: now, Text: by, Ends: Canceled}, err
}

// Undone decides that the run ends, because everything is undone. If text is not "", an undo has
// failed instead: the run is dead, and a retry calls the undos in redo again.
func (c Commands) Undone(r *Run, text string, redo []byte, now int64) Record {
	rec := Record{Kind: Undone, Run: r.ID, At: now, Attempt: int(r.Steps[0].Attempt), Ends: r.flow.undo.outcome}
	if text != "" {
		rec.Reason, rec.Text, rec.Data, rec.Ends = retry.StopUndo, text, redo, Dead
	}
	return rec
}

// canceledOp is the code of operations that have not ended when the run begins to undo.
const canceledOp = "canceled"

// applyUndoing makes the run undo its operations. Those that have not ended fail, except attempts
// that are running and children that are to be canceled.
func (m *state) applyUndoing(r *Run, rec *Record) {
	f := r.flow
	f.undo = &undo{outcome: Outcome(rec.Count), reason: rec.Reason, redo: bytes.Clone(rec.Data), since: len(f.results)}
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
			ends = append(ends, Record{Step: int(f.ops[i].number), At: rec.At, Other: c.Run(), Reason: retry.StopCanceled, Text: "the run undoes its operations", Data: []byte(canceledOp)})
		}
	}
	for i := range ends {
		m.endOp(r, &ends[i])
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
func (m *state) applyUndone(r *Run, rec *Record) {
	f, s := r.flow, &r.Steps[0]
	m.endAttempt(r, 0)
	s.Status = Exhausted
	if rec.Reason != 0 {
		f.redo = bytes.Clone(rec.Data)
		m.setOutcome(r, Dead, rec.Reason, rec.At)
		return
	}
	f.undo.done, f.redo = true, f.undo.redo
	m.setOutcome(r, f.undo.outcome, f.undo.reason, rec.At)
}

// forgetUndone forgets the results of operations that were undone, and of their undos, and the
// failures since the run began to undo, so that a retry of the run calls the operations again.
func (f *flow) forgetUndone(keepChildren bool) {
	if f.undo == nil || !f.undo.done {
		return
	}
	undone := map[string]bool{}
	for o := range ReadResults(f.results) {
		if isUndo(o.Name) {
			undone[OpName(o.Name)] = true
		}
	}
	f.forget(keepChildren, func(at int, o *OpResult) bool {
		return isUndo(o.Name) || canHaveUndo(o.Name) && undone[OpName(o.Name)] || at >= f.undo.since && o.Reason != 0
	})
	f.undo, f.undoable = nil, 0
	f.undos++
}

// canHaveUndo reports whether the operation with this identity is of a kind that can be undone.
func canHaveUndo(identity string) bool {
	kind, _, _ := strings.Cut(identity, ":")
	return kind == "do" || kind == "item"
}

// endsNow reports whether an operation gives up after an attempt that did not succeed, whatever
// its policy says, because the run is undoing.
func (r *Run) endsNow(step int) bool { return step > 0 && r.IsUndoing() && !r.IsUndo(step) }

// append encodes the undo without its first byte.
func (u *undo) append(b []byte) []byte {
	b = append(b, byte(u.outcome), byte(u.reason), bitIf(u.done, 1))
	b = codec.AppendBytes(b, u.redo)
	return binary.AppendUvarint(b, uint64(u.since))
}

func readUndo(in *codec.Reader) *undo {
	return &undo{outcome: Outcome(in.Byte()), reason: retry.Reason(in.Byte()), done: in.Byte() == 1, redo: bytes.Clone(in.Bytes()), since: in.Number()}
}

// appendUndo encodes the part of a flow that is about undoing.
func (f *flow) appendUndo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.undoable))
	b = append(b, bitIf(f.undo != nil, hasUndo)|bitIf(f.undos > 0, hasUndos))
	if f.undos > 0 {
		b = binary.AppendUvarint(b, uint64(f.undos))
	}
	if f.undo != nil {
		b = f.undo.append(b)
	}
	return b
}

func (f *flow) readUndo(in *codec.Reader) {
	f.undoable = int32(in.Number())
	has := in.Byte()
	if has&hasUndos != 0 {
		f.undos = int32(in.Number())
	}
	if has&hasUndo != 0 {
		f.undo = readUndo(in)
	}
}

// Bits that say which parts follow: see flow.appendUndo.
const (
	hasUndo  = 1
	hasUndos = 2
)
