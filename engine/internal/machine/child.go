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
	Started  bool // of one in another shard: that shard has stored its start; of one with a Former.ID: it is known which run is the child
	Former   FormerChild
}

// Run returns the run that the operation waits for, as far as that is known.
func (c *Child) Run() ID {
	if !c.Started && !c.Former.ID.IsZero() {
		return c.Former.ID
	}
	return c.ID
}

// FormerChild is the child that an operation had before it was called again: by a retry of its run,
// or by a run that repeats its run. The zero value means none.
type FormerChild struct {
	ID     ID  // the run that ended last for the operation; zero if the operation needs a run of its own
	Origin ID  // origin of the former children, which a new child gets: see Run.Origin
	Undos  int // how often the operations of the former children were undone: see Run.AllUndos
}

// FormerKind is the kind, in the identity of a result, of those that have the former child of an
// operation, whose name they have. Run.Results does not return them.
const FormerKind = "former"

func (f *FormerChild) append(b []byte) []byte {
	b = append(append(b, f.ID[:]...), f.Origin[:]...)
	return binary.AppendUvarint(b, uint64(f.Undos))
}

func readFormer(in *codec.Reader) FormerChild {
	return FormerChild{ID: in.Array(), Origin: in.Array(), Undos: in.Number()}
}

// after returns the former child for the next call of the operation, when the record has ended this
// one.
func (c *Child) after(rec *Record) FormerChild {
	f := FormerChild{ID: rec.Other, Origin: c.Former.Origin, Undos: max(c.Former.Undos, rec.Count)}
	if f.Origin.IsZero() {
		f.Origin = c.ID
	}
	return f
}

// former returns the former child of an operation that failed; ok is false if the operation is of
// another kind, or its child was never started. Earlier versions stored only the error, which
// begins with the id of the child.
func (o *OpResult) former() (f FormerChild, ok bool) {
	if !isChildOp(o.Name) || o.Reason == 0 {
		return f, false
	}
	if len(o.Data) > 0 {
		in := codec.Reader{Data: o.Data}
		f = readFormer(&in)
		return f, in.Err == nil
	}
	text, _ := strings.CutPrefix(o.Text, "run ")
	text, _, _ = strings.Cut(text, " ")
	id, err := ParseID(text)
	return FormerChild{ID: id, Origin: id}, err == nil
}

// FormerChildren returns the former children of the operations of a run that was retried, by the
// identity of the operation; nil if there are none. The run must not be cold.
func (r *Run) FormerChildren() (children map[string]FormerChild) {
	if !r.retried {
		return nil
	}
	for _, o := range resultsAt(r.flow.results) {
		if kind, name, _ := strings.Cut(o.Name, ":"); kind == FormerKind {
			if children == nil {
				children = map[string]FormerChild{}
			}
			in := codec.Reader{Data: o.Data}
			children[ChildKind+":"+name] = readFormer(&in)
		}
	}
	return children
}

// FormerChild returns the child of the operation with this identity, for a run that repeats this
// one. ok is false if this run has not called the operation. slot is that of a child which is
// started now: it is needed if the history does not have the call of the operation any more. The
// run must not be cold.
func (r *Run) FormerChild(identity string, slot int) (f FormerChild, ok bool) {
	if r.flow == nil {
		return f, false
	}
	number := 0
	for _, o := range resultsAt(r.flow.results) {
		switch {
		case o.Name == FormerKind+":"+OpName(identity):
			in := codec.Reader{Data: o.Data}
			f, number = readFormer(&in), 0
		case o.Name != identity:
			continue
		case o.Reason != 0:
			failed, started := o.former()
			if !started {
				continue
			}
			f, number = failed, 0
		case f.Origin.IsZero():
			number = o.Number
		}
		ok = true
	}
	for i := range r.flow.ops {
		if c, isChild := r.flow.ops[i].child(); isChild && r.flow.ops[i].name == identity {
			f, number, ok = c.after(&Record{Other: c.ID}), 0, true
		}
	}
	if number > 0 {
		f.Origin = ChildID(r, number, slot)
		for rec := range r.Records() {
			if rec.Kind == Called && rec.Step == number {
				f.Origin = rec.Other
			}
		}
	}
	f.ID = ID{}
	return f, ok
}

// RetriesChildren reports whether a retry of the run continues former children of its operations.
// Older versions can't read that. The run must not be cold.
func (r *Run) RetriesChildren() bool {
	if r.flow != nil {
		for _, o := range resultsAt(r.flow.results) {
			if _, ok := o.former(); ok {
				return true
			}
		}
	}
	return false
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
	hasFormer := !c.Former.Origin.IsZero()
	b := append(bytes.Clone(c.ID[:]), bitIf(c.Detached, childDetached)|bitIf(c.Started, childStarted)|bitIf(hasFormer, childFormer))
	if hasFormer { // older versions ignore it
		b = c.Former.append(b)
	}
	return b
}

// The flags of a child. The numbers are stored.
const (
	childDetached = 1
	childStarted  = 2
	childFormer   = 4 // Child.Former follows
)

// StartChild decides to record that the run id is the child of an operation, and was started in
// another shard, or before the operation was called again. ok is
// false if the run or the operation has ended, or this is recorded: after the end of a run only
// records come that it is needed for, because it may not be in memory after a restart.
func (c Commands) StartChild(of Parent, id ID, now int64) (rec Record, ok bool) {
	r, err := c.find(of.Run)
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

// ChildStarted reports whether the child of an operation is known to be started in another shard.
// The run must not be cold.
func (r *Run) ChildStarted(n int) bool { return r.childOf(n).Started }

// ChildOf returns the id of the child of an operation that has not ended. The run must not be cold.
func (r *Run) ChildOf(n int) ID {
	c := r.childOf(n)
	return c.Run()
}

// FormerOf returns the former child of an operation that has not ended; zero if there is none. The
// run must not be cold.
func (r *Run) FormerOf(n int) FormerChild { return r.childOf(n).Former }

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
	if !isChildOp(o.name) {
		return c, false
	}
	in := codec.Reader{Data: o.progress}
	c.Number, c.ID = int(o.number), in.Array()
	flags := in.Byte()
	c.Detached, c.Started = flags&childDetached != 0, flags&childStarted != 0
	if flags&childFormer != 0 {
		c.Former = readFormer(&in)
	}
	return c, true
}

func isChildOp(identity string) bool { return strings.HasPrefix(identity, ChildKind+":") }

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
	Undos  int          // see FormerChild
}

// EndOfChild returns how the run has ended, for its parent. The run must not be cold.
func (r *Run) EndOfChild() *ChildEnd {
	e := &ChildEnd{Parent: r.Parent(), Child: r.ID, Reason: r.Reason, Undos: r.AllUndos()}
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
		e.Code, e.Text = cmp.Or(r.failureCode(), e.Reason.String()), fmt.Sprintf("run %s is dead: %s", r.ID, text)
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
	rec = Record{Kind: ChildEnded, Run: r.ID, Step: e.Parent.Number, At: now, Other: e.Child, Reason: e.Reason, Text: e.Text, Data: e.Output, Count: e.Undos}
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

// Adopt decides to record that an operation of another run waits for this one: it is the parent of
// the run from now on, and must be told of its end.
func (c Commands) Adopt(r *Run, parent Parent, now int64) Record {
	return Record{Kind: Adopted, Run: r.ID, At: now, Other: parent.Run, Count: parent.Number}
}

// parentEnded is the code of an operation whose child did not succeed after the end of the run. A
// retry of the run calls it again.
const parentEnded = "parent-ended"

// applyChildEnded ends the operation that waited for the child.
func (m *state) applyChildEnded(r *Run, rec *Record) {
	end := *rec
	if r.Outcome != Undecided && rec.Reason != 0 {
		end.Data = []byte(parentEnded)
	}
	m.endOp(r, &end)
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
