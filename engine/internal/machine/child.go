package machine

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

// A child is a run that an operation of another run, its parent, has started and waits for. The
// operation ends when the parent records the end of the child. The child is kept in memory until
// then. A parent that has ended, and whose children must be canceled, is kept until these have
// ended.

// ChildKind is the kind, in the identity of an operation, of those that wait for a child.
const ChildKind = "child"

// Child is the child of an operation that has not ended.
type Child struct {
	Number   int // number of the operation
	ID       ID
	Detached bool // it is not canceled with its parent
	Started  bool // of one in another shard: that shard has stored its start
}

// Parent is the operation that has started a run.
type Parent struct {
	Run    ID
	Number int  // number of the operation
	Told   bool // the parent has recorded the end of this run, or needs not
}

// ChildID returns the id of the child of an operation. It follows from the parent and the number of
// the operation, so that the child is started only once.
func ChildID(parent *Run, number, slot int) ID {
	b := binary.AppendUvarint(bytes.Clone(parent.ID[:]), uint64(number))
	sum := sha256.Sum256(b)
	return NewID(parent.Created, binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])).In(slot)
}

// Encode returns the child as it is stored with its operation.
func (c *Child) Encode() []byte {
	return append(bytes.Clone(c.ID[:]), bitIf(c.Detached, childDetached)|bitIf(c.Started, childStarted))
}

// The flags of a child. The numbers are stored.
const (
	childDetached = 1
	childStarted  = 2
)

// StartChild decides to record that the child of an operation was started in another shard. ok is
// false if the run or the operation has ended, or this is recorded: after the end of a run only
// records come that it is needed for, because it may not be in memory after a restart.
func (c Commands) StartChild(of Parent, now int64) (rec Record, ok bool) {
	r, err := c.find(of.Run)
	if err != nil || r.flow == nil || r.Outcome != Undecided || r.flow.index(of.Number) < 0 {
		return rec, false
	}
	child, ok := r.flow.ops[r.flow.index(of.Number)].child()
	if !ok || child.Started {
		return rec, false
	}
	child.Started = true
	return Record{Kind: Progress, Run: r.ID, Step: of.Number, At: now, Data: child.Encode()}, true
}

// ChildStarted reports whether the child of an operation is known to be started in another shard.
// The run must not be cold.
func (r *Run) ChildStarted(n int) bool { return r.childOf(n).Started }

// ChildOf returns the id of the child of an operation that has not ended. The run must not be cold.
func (r *Run) ChildOf(n int) ID { return r.childOf(n).ID }

func (r *Run) childOf(n int) (c Child) {
	if i := r.flow.index(n); i >= 0 {
		c, _ = r.flow.ops[i].child()
	}
	return c
}

// Children returns the children of the operations that have not ended. The run must not be cold.
func (r *Run) Children() (list []Child) {
	if r.flow == nil {
		return nil
	}
	for i := range r.flow.ops {
		if c, ok := r.flow.ops[i].child(); ok {
			list = append(list, c)
		}
	}
	return list
}

// child returns the child of the operation; ok is false if it is of another kind.
func (o *op) child() (c Child, ok bool) {
	if !strings.HasPrefix(o.name, ChildKind+":") {
		return c, false
	}
	in := codec.Reader{Data: o.progress}
	c.Number, c.ID = int(o.number), in.Array()
	flags := in.Byte()
	c.Detached, c.Started = flags&childDetached != 0, flags&childStarted != 0
	return c, true
}

// mustCancel reports whether the run has ended and has children that are to be canceled.
func (r *Run) mustCancel() bool {
	if r.Outcome == Undecided || r.flow == nil {
		return false
	}
	for i := range r.flow.ops {
		if c, ok := r.flow.ops[i].child(); ok && !c.Detached {
			return true
		}
	}
	return false
}

// IsNeeded reports whether the run has to stay in memory although it has ended: its parent has not
// recorded that, or it has children that are to be canceled.
func (r *Run) IsNeeded() bool {
	p := r.Parent()
	return !p.Run.IsZero() && !p.Told || r.mustCancel()
}

// Parent returns the operation that has started the run; zero if there is none.
func (x *extra) Parent() Parent {
	if p := x.read().parent; p != nil {
		return *p
	}
	return Parent{}
}

// ChildEnd says how a child has ended.
type ChildEnd struct {
	Parent Parent
	Child  ID
	Reason retry.Reason // 0 if it succeeded
	Code   string       // of its failure
	Text   string       // of its failure
	Output []byte       // if it succeeded
}

// EndOfChild returns how the run has ended, for its parent. The run must not be cold.
func (r *Run) EndOfChild() *ChildEnd {
	e := &ChildEnd{Parent: r.Parent(), Child: r.ID, Reason: r.Reason}
	switch r.Outcome {
	case Succeeded:
		e.Reason, e.Output = 0, r.Result()
		if e.Output == nil {
			e.Output = []byte("null")
		}
	case Canceled:
		e.Reason, e.Code, e.Text = retry.StopCanceled, Canceled.String(), fmt.Sprintf("run %s was canceled", r.ID)
	case Dead, Undecided:
		_, text, _ := r.Situation()
		e.Reason = cmp.Or(r.Reason, retry.StopPermanent)
		e.Code, e.Text = e.Reason.String(), fmt.Sprintf("run %s is dead: %s", r.ID, text)
	}
	return e
}

// EndChild decides to record the end of a child in its parent. ok is false if no operation of the
// parent waits for it any more.
func (c Commands) EndChild(e *ChildEnd, now int64) (rec Record, ok bool, err error) {
	r, err := c.find(e.Parent.Run)
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
	rec = Record{Kind: ChildEnded, Run: r.ID, Step: e.Parent.Number, At: now, Other: e.Child, Reason: e.Reason, Text: e.Text, Data: e.Output}
	switch size := int(r.flow.size) + int(r.flow.inbox.read().size) + len(e.Output); {
	case e.Reason != 0:
		rec.Data = []byte(e.Code)
	case size > MaxResults:
		rec.Reason, rec.Data = retry.StopPermanent, []byte("too-large")
		rec.Text = fmt.Sprintf("run %s succeeded, but with its result those of the operations would have more than %d MiB", e.Child, MaxResults>>20)
	}
	return rec, true, nil
}

// Tell decides to record that the parent of a run needs not be told of its end any more.
func (c Commands) Tell(r *Run, now int64) Record {
	return Record{Kind: ParentTold, Run: r.ID, At: now}
}

// applyChildEnded ends the operation that waited for the child. If the run has ended, and the child
// did not succeed, it only removes the operation: a retry of the run starts another child.
func (m *state) applyChildEnded(r *Run, rec *Record) {
	if r.Outcome == Undecided || rec.Reason == 0 {
		m.endOp(r, rec)
	} else {
		m.removeOp(r, rec.Step)
	}
	m.retireUnneeded(r, rec.At)
}

// retireUnneeded is called when a reason is gone for which a run was needed.
func (m *state) retireUnneeded(r *Run, at int64) {
	switch {
	case !r.Finished() || r.IsNeeded():
	case r.Continued():
		m.use(r.Def.hash, at)
	default:
		m.retire(r, at)
	}
}

// applyTold notes that the parent has been told.
func (r *Run) applyTold() {
	if p := r.Parent(); !p.Run.IsZero() {
		p.Told = true
		r.more().parent = &p
	}
}

// encodeParent returns the parent as the record of a start has it.
func (p Parent) encode() []byte {
	b := append(bytes.Clone(p.Run[:]), bitIf(p.Told, 1))
	return binary.AppendUvarint(b, uint64(p.Number))
}

// readParent decodes a parent; nil if data is empty.
func readParent(data []byte) (*Parent, error) {
	if len(data) == 0 {
		return nil, nil
	}
	in := codec.Reader{Data: data}
	p := &Parent{Run: in.Array(), Told: in.Byte() == 1, Number: in.Number()}
	return p, in.Err
}
