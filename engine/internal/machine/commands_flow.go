package machine

import (
	"cmp"
	"fmt"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/retry"
)

// OpCall is a call of an operation by the function of a run.
type OpCall struct {
	Name  string      // identity: kind, name and key
	Def   *Definition // policy and limits of an operation with attempts; nil for others
	Due   int64       // of a sleep: when it ends
	Data  []byte      // result of an operation that has ended with its call
	About []byte      // of an operation that waits for an answer: the question
	Child *Child      // of an operation that waits for a child
	Undo  bool        // it has an undo
	Begin bool        // its first attempt begins: see EmptyQueue
}

// CallOp decides to add an operation to the run.
func CallOp(r *Run, o *OpCall, now int64) Record {
	rec := Record{Kind: Called, Run: r.ID, Step: int(r.flow.count) + 1, At: now, Text: o.Name, Due: o.Due, Data: o.Data}
	if o.Def != nil {
		rec.Hash = o.Def.hash
	}
	if o.About != nil {
		rec.outputs = [][]byte{o.About}
	}
	if c := o.Child; c != nil {
		rec.outputs, rec.other = [][]byte{c.Encode()}, c.ID
		if !c.Former.ID.IsZero() {
			rec.format = ChildFormat // an older version would wait for a run that does not exist
		}
	}
	if o.Undo {
		rec.count = 1
	}
	if o.Begin {
		rec.Attempt, rec.Deadline = 1, attemptEnd(r, &o.Def.Steps[0].Policy, now, now)
	}
	return rec
}

// EmptyQueue returns the queue of an operation with this definition, if the first attempt can begin with
// the call of the operation, without waiting in the queue: it is empty, and neither the run nor its
// workflow is paused. Otherwise it returns nil.
func (c Commands) EmptyQueue(r *Run, def *Definition) *Queue {
	known, ok := c.defs[def.hash]
	if !ok || known.Steps[0].queue.Len() > 0 || !hasTimers(r) || r.Pause() != nil {
		return nil
	}
	return known.Steps[0].queue
}

// Suspend decides that the call of the run's function ends, because all operations that it waits
// for have long waits. The function is called again when an operation needs an attempt, or
// this many of them have ended.
func Suspend(r *Run, mustEnd int, now int64) Record {
	return Record{Kind: Suspended, Run: r.ID, At: now, Attempt: int(r.Steps[0].Attempt), count: mustEnd}
}

// Slept decides that a sleep has ended, or that the time is over in which an operation waits for a
// signal.
func (c Commands) Slept(r *Run, n int, now int64) Record {
	_ = c.warm(r) // Apply returns the error
	identity := r.flow.Identity(n)
	if OpKindOf(identity).Waits != ForSignal {
		return Record{Kind: Done, Run: r.ID, Step: n, At: now, Data: []byte("null")}
	}
	text := "no answer in time"
	if !isQuestion(identity) {
		text = fmt.Sprintf("no signal %s came in time", OpName(identity))
	}
	return Record{Kind: NoSignal, Run: r.ID, Step: n, At: now, Reason: retry.StopTimeout, Text: text, Data: []byte(info.NoEvent)}
}

// ParkMismatch decides that the run waits for other code, because its function did not call the same
// operations as before.
func ParkMismatch(r *Run, why string, now int64) Record {
	return Record{Kind: Parked, Run: r.ID, At: now, Attempt: int(r.Steps[0].Attempt), Text: why}
}

// RecallFunction decides that a call of the function that was lost with its process is made again. It
// is no loss of the function if AwaitsOp is true.
func RecallFunction(r *Run, now int64) Record {
	return Record{Kind: Released, Run: r.ID, At: now, Attempt: int(r.Steps[0].Attempt), Text: "the process died while the function waited for an operation"}
}

// Describe decides to set the status of the run and its tags, a JSON object. "" leaves the tags
// as they are.
func Describe(r *Run, status, tags string, now int64) Record {
	rec := Record{Kind: Described, Run: r.ID, At: now, Text: status}
	if tags != "" {
		rec.Data = []byte(tags)
	}
	return rec
}

// ContinueAs decides that the run ends and another run of its chain, next, follows it.
func ContinueAs(r *Run, next ID, now int64) Record {
	rec := nextRecord(Continued, r.ID, next, now)
	rec.Attempt, rec.Ends = int(r.Steps[0].Attempt), Succeeded
	return rec
}

// FailFunction decides that the run undoes its operations, because its function has returned an error, as
// the result says.
func FailFunction(r *Run, res *Result, now int64) Record {
	rec := undoingRecord(r.ID, Dead, cmp.Or(res.Reason, retry.StopPermanent), res.Error, now)
	rec.Data = res.Redo
	setCode(&rec, res.Code)
	return rec
}

// EndUndo decides that the run ends, because everything is undone. If text is not "", an undo has
// failed instead: the run is dead, and a retry calls the undos in redo again.
func EndUndo(r *Run, text string, redo []byte, now int64) Record {
	rec := Record{Kind: Undone, Run: r.ID, At: now, Attempt: int(r.Steps[0].Attempt), Ends: r.flow.undo.outcome}
	if text != "" {
		rec.Reason, rec.Text, rec.Data, rec.Ends = retry.StopUndo, text, redo, Dead
	}
	return rec
}

// StartChild decides to record that the run id is the child of an operation, and was started in
// another shard, or before the operation was called again. ok is
// false if the run or the operation has ended, or this is recorded: after the end of a run only
// records come that it is needed for, because it may not be in memory after a restart.
func (c Commands) StartChild(of Parent, id ID, now int64) (rec Record, ok bool) {
	r, err := c.Read(of.Run)
	if err != nil || r.flow == nil || r.Outcome != Undecided || r.flow.index(of.Number) < 0 {
		return rec, false
	}
	child, ok := r.flow.ops[r.flow.index(of.Number)].child()
	if !ok || child.Started {
		return rec, false
	}
	child.Started, child.ID = true, id
	return Record{Kind: Progress, Run: r.ID, Step: of.Number, At: now, Data: child.Encode()}, true
}

// EndChild decides to record the end of a child in its parent. ok is false if no operation of the
// parent waits for it any more.
func (c Commands) EndChild(e *ChildEnd, now int64) (rec Record, ok bool, err error) {
	r, err := c.Read(e.Parent.Run)
	if err != nil || r.flow == nil {
		return rec, false, err
	}
	i := r.flow.index(e.Parent.Number)
	if i < 0 {
		return rec, false, nil
	}
	child, ok := r.flow.ops[i].child()
	if !ok || child.Detached && r.Finished() { // such a run may not be in memory after a restart
		return rec, false, nil
	}
	rec = childRecord(e, now)
	if size := int(r.flow.size) + int(valueOf(r.flow.inbox).size) + len(e.Output); e.Reason == 0 && size > MaxResults {
		rec.Reason = retry.StopPermanent
		rec.Data = []byte("too-large")
		rec.Text = fmt.Sprintf("run %s succeeded, but with its result those of the operations would have more than %d MiB", e.Child, MaxResults>>20)
	}
	return rec, true, nil
}

// TellParent decides to record that the parent of a run needs not be told of its end any more.
func TellParent(r *Run, now int64) Record {
	return Record{Kind: ParentTold, Run: r.ID, At: now}
}

// AdoptRun decides to record that an operation of another run waits for this one: it is the parent of
// the run from now on, and must be told of its end.
func AdoptRun(r *Run, parent Parent, now int64) Record {
	return Record{Kind: Adopted, Run: r.ID, At: now, other: parent.Run, count: parent.Number}
}

// DeliverKept decides to give a signal that the run has kept to an operation that waits for it by
// another name: identity is that which the function gives the operation now. ok is false if there is
// no such signal, or the operation has ended. Older versions can't read the record.
func DeliverKept(r *Run, n int, identity string, now int64) (rec Record, ok bool) {
	name, isAwait := awaited(identity)
	if !isAwait || OpKindOf(r.flow.Identity(n)).Waits != ForSignal {
		return rec, false
	}
	for _, s := range valueOf(r.flow.inbox).signals {
		if s.name == name {
			rec = signaledRecord(r.ID, n, &Signal{Name: s.name, Data: s.data}, now)
			rec.count, rec.format = 1, ChildFormat
			return rec, true
		}
	}
	return rec, false
}
