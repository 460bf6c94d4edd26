package machine

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

// FormerChildren returns the former children of the operations of a run that was retried, by the
// identity of the operation; nil if there are none. The run must not be cold.
func FormerChildren(r *Run) (children map[string]FormerChild) {
	if !r.retried {
		return nil
	}
	for _, o := range resultsAt(r.flow.results) {
		if kind, name, _ := strings.Cut(o.Name, ":"); kind == FormerKind {
			if children == nil {
				children = map[string]FormerChild{}
			}
			children[ChildKind+":"+name] = readFormer(&codec.Reader{Data: o.Data})
		}
	}
	return children
}

// FormerChildOf returns the child of the operation with this identity, for a run that repeats this
// one. ok is false if this run has not called the operation. slot is that of a child which is
// started now: it is needed if the history does not have the call of the operation any more. The
// run must not be cold.
func FormerChildOf(r *Run, identity string, slot int) (f FormerChild, ok bool) {
	if r.flow == nil {
		return f, false
	}
	number := 0
	for _, o := range resultsAt(r.flow.results) {
		switch {
		case o.Name == FormerKind+":"+OpName(identity):
			f, number = readFormer(&codec.Reader{Data: o.Data}), 0
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
			f, number, ok = c.after(c.ID, 0), 0, true
		}
	}
	if number > 0 {
		f.Origin = ChildID(r, number, slot)
		for rec := range r.Records() {
			if rec.Kind == Called && rec.Step == number {
				f.Origin = rec.Child()
			}
		}
	}
	f.ID = ID{}
	return f, ok
}

// ChildID returns the id of the child of an operation. It follows from the parent and the number of
// the operation, so that the child is started only once.
func ChildID(parent *Run, number, slot int) ID {
	b := binary.AppendUvarint(bytes.Clone(parent.ID[:]), uint64(number))
	sum := sha256.Sum256(b)
	return NewID(parent.Created, binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])).In(slot)
}

// mustUndo reports whether the run has to undo operations before it ends.
func mustUndo(r *Run) bool {
	return r.Outcome == Undecided && r.flow != nil && r.flow.undoable > 0 && r.flow.undo == nil
}

// EndOfChild returns how the run has ended, for its parent. The run must not be cold.
func EndOfChild(r *Run) *ChildEnd {
	e := &ChildEnd{Parent: r.Parent(), Child: r.ID, Reason: r.Reason, Undos: AllUndos(r)}
	switch r.Outcome {
	case Succeeded:
		e.Reason, e.Output = 0, r.Result()
		if e.Output == nil {
			e.Output = []byte("null")
		}
	case Canceled:
		e.Reason, e.Code, e.Text = retry.StopCanceled, Canceled.String(), fmt.Sprintf("run %s was canceled", r.ID)
	case Dead, Undecided:
		_, text, _ := Situation(r)
		e.Reason = cmp.Or(r.Reason, retry.StopPermanent)
		e.Code, e.Text = cmp.Or(failureCode(r), e.Reason.String()), fmt.Sprintf("run %s is dead: %s", r.ID, text)
	}
	return e
}

// Asks reports whether the run waits for the answer to a question. The run must not be cold.
func Asks(r *Run) bool {
	return r.flow != nil && r.Outcome == Undecided && slices.ContainsFunc(r.flow.ops, func(o op) bool { return isQuestion(o.name) })
}

// WaitsForEver reports whether an operation of the run waits for a signal or a child, without a limit.
func WaitsForEver(r *Run) bool {
	return r.flow != nil && slices.ContainsFunc(r.Steps[1:], func(s StepState) bool { return s.Status == Blocked })
}
