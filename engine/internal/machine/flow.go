package machine

import (
	"cmp"
	"slices"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

// A flow is a workflow that consists of one function (Definition.Flow). The function is step 0
// of its run. Each operation that the function calls becomes a further step, with the next
// number. An operation that has ended is not a step any more: its result is kept, and the
// function gets it when it is called again.

// MaxOps is the number of operations that a run can call.
const MaxOps = 20_000

// MaxResults is how many bytes the results of the operations of a run can have together, with the
// errors of those that failed. If there is no room, errors are cut: see minError.
const MaxResults = 32 << 20

// flow has the operations of a run of a flow. That of a cold run has only ops, without their
// names: see coldFlow.
type Flow struct {
	ops      []op   // operations that have not ended, ordered by number; their states are Run.Steps[1:]
	results  []byte // encoded results of the operations that have ended: see OpResult
	redo     []byte // encoded numbers of the failed operations that a retry of the run calls again
	about    *about // status and tags; nil if the function has set none
	inbox    *inbox // signals; nil if the run has got none
	undo     *undo  // how the run ends when its operations are undone; nil if it does not undo them
	count    int32  // number of operations that were called
	undoable int32  // number of operations with an undo that were called
	undos    int32  // how often the operations were undone and called again
	attempts int32  // number of attempts of operations that have ended
	size     int32  // bytes of the results of the operations
	mustEnd  int32  // while the function is suspended: how many operations must end before it is called again
}

// about is what the function has said about the run.
type about struct {
	status string // what the function set last by SetStatus
	tags   string // JSON object of the tags that the function set by SetTag; "" if it has never set any
}

// op is an operation that has not ended.
type op struct {
	name     string      // identity: kind, name and key
	def      *Definition // policy and limits; nil for one without attempts
	progress []byte      // last progress or memo; nil for none
	number   int32       // number of the step
}

// waitStep is the definition of the step of an operation without attempts.
var waitStep = Step{Name: "sleep"}

// definition returns the definition of an operation that has not ended.
func (f *Flow) definition(n int) *Step {
	if d := f.ops[f.index(n)].def; d != nil {
		return &d.Steps[0]
	}
	return &waitStep
}

// Identity returns the identity of an operation; "" if it has ended.
func (f *Flow) Identity(n int) string {
	if i := f.index(n); i >= 0 {
		return f.ops[i].name
	}
	return ""
}

// index returns the index of an operation in ops; negative if it is not there.
func (f *Flow) index(n int) int {
	if last := len(f.ops) - 1; last >= 0 && f.ops[last].number == int32(n) { // most often
		return last
	}
	i, found := slices.BinarySearchFunc(f.ops, int32(n), func(o op, n int32) int { return cmp.Compare(o.number, n) })
	if !found {
		return -1
	}
	return i
}

// Status returns what the function of the run set last by SetStatus.
func (f *Flow) Status() string { return f.described().status }

// Tags returns the JSON object of the run's tags; "" if its function has never set any.
func (f *Flow) Tags() string { return f.described().tags }

// described returns what the function has said about the run.
func (f *Flow) described() about {
	if f == nil {
		return about{}
	}
	return valueOf(f.about)
}

// Called returns the number of operations that the run has called, and the bytes of their
// results and of signals.
func (f *Flow) Called() (n, bytes int) {
	return int(f.count), int(f.size) + int(valueOf(f.inbox).size)
}

// Pending returns the identities and numbers of the operations that have not ended; nil if there
// are none.
func (f *Flow) Pending() map[string]int {
	if len(f.ops) == 0 {
		return nil
	}
	ops := make(map[string]int, len(f.ops))
	for _, o := range f.ops {
		ops[o.name] = int(o.number)
	}
	return ops
}

// Results returns the encoded results of the operations that have ended, for ReadResults. The
// bytes do not change any more. The run must not be cold.
func (f *Flow) Results() []byte {
	if f == nil {
		return nil
	}
	return slices.Clip(f.results[f.formerEnd():])
}

// formerEnd returns where the results of operations begin, after the former children.
func (f *Flow) formerEnd() int {
	for at, o := range resultsAt(f.results) {
		if o.Number > 0 {
			return at
		}
	}
	return len(f.results)
}

// FailedOp returns the result of the first of the operations that a retry of the run calls again: its
// failure has made the function give up. ok is false if no operation has failed. The run must be that
// of a flow.
func (f *Flow) FailedOp() (op OpResult, ok bool) {
	redo := decodeRedo(f.redo)
	if len(redo) == 0 {
		return op, false
	}
	for o := range ReadResults(f.results) {
		if redo[o.Number] && (!ok || o.Number < op.Number) {
			op, ok = o, true
		}
	}
	return op, ok
}

// RetriesChildren reports whether a retry of the run continues former children of its operations.
// Older versions can't read that. The run must not be cold.
func (f *Flow) RetriesChildren() bool {
	if f != nil {
		for _, o := range resultsAt(f.results) {
			if _, ok := o.former(); ok {
				return true
			}
		}
	}
	return false
}

// ChildOf returns the child of an operation that has not ended; zero if there is none. The run must not
// be cold.
func (f *Flow) ChildOf(n int) (c Child) {
	if i := f.index(n); i >= 0 {
		c, _ = f.ops[i].child()
	}
	return c
}

// Children returns the children of the operations that have not ended. The run must not be cold.
func (f *Flow) Children() (list []Child) {
	if f == nil {
		return nil
	}
	for i := range f.ops {
		if c, ok := f.ops[i].child(); ok {
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

// HasSignal reports whether the run has got a signal with this id. The run must not be cold.
func (f *Flow) HasSignal(id string) bool {
	return f != nil && id != "" && slices.Contains(valueOf(f.inbox).seen, hashOf([]byte(id)))
}

// isMovable reports whether a user may end or move the wait of a step. The run must not be cold.
func (f *Flow) isMovable(n int) bool {
	return f == nil || n == 0 || OpKindOf(f.Identity(n)).Waits.IsMovable()
}

// Inbox returns what the run that continues this one gets: its encoded signals that no operation
// has waited for, and the ids of the last signals. It returns nil if there are none.
func (f *Flow) Inbox() []byte {
	if f == nil || f.inbox == nil {
		return nil
	}
	b := *f.inbox
	b.seen = b.seen[max(len(b.seen)-maxInherited, 0):]
	return b.append(nil)
}

// A run whose function has called operations with an undo does not end at once when it fails or is
// canceled: first it is undoing. Its function is called, and calls one operation of UndoKind for
// each of them, in reverse order. Then the run gets its outcome.

// undo says how a run ends that is undoing.
type undo struct {
	outcome Outcome
	reason  retry.Reason
	done    bool   // everything is undone: a retry of the run calls the operations again
	redo    []byte // the operations that a retry calls again then, beside those that were undone: see EncodeRedo
	since   int    // bytes of the results when the run began to undo
}

// IsUndo reports whether a step undoes an operation. The run must not be cold.
func (f *Flow) IsUndo(n int) bool { return f != nil && n > 0 && isUndo(f.Identity(n)) }

// IsUndoing reports whether the run undoes its operations, or has tried to.
func (f *Flow) IsUndoing() bool { return f != nil && f.undo != nil && !f.undo.done }

// HasCanceled reports whether the operation with this result was canceled, because it had not ended when
// the run began to undo.
func (f *Flow) HasCanceled(o *OpResult) bool {
	return f.undo != nil && o.Reason == retry.StopCanceled && o.Code == canceledOp
}

// Undoable returns how many operations with an undo the run has called; 0 if they are undone. The
// run must be that of a flow.
func (f *Flow) Undoable() int {
	if f.undo != nil && f.undo.done {
		return 0
	}
	return int(f.undoable)
}
