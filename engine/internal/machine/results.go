package machine

import (
	"maps"
	"slices"

	"github.com/tideover/tideover/internal/textfmt"
)

// fitError cuts the error of a failed operation if the results of the run have no room for it.
func fitError(f *Flow, text string) string {
	room := max(MaxResults-int(f.size), minError)
	return textfmt.TruncateValid(text, room, "… (cut: the results of the run have the largest size)")
}

// minError is how many bytes of its error a failed operation can always store.
const minError = 100

func addResult(f *Flow, o *OpResult) {
	f.results = o.append(slices.Grow(f.results, 40+len(o.Name)+len(o.Code)+len(o.Text)+len(o.Data)))
	f.size += int32(len(o.Data) + len(o.Text))
	f.attempts += int32(o.Attempts)
}

// addFormer keeps the former children of operations, by the names of their results. They are before
// the results of operations, so that these are found fast: see formerEnd.
func addFormer(f *Flow, children map[string][]byte) {
	if len(children) == 0 {
		return
	}
	removeResults(f, func(_ int, o *OpResult) bool { return children[o.Name] != nil })
	var former []byte
	for _, name := range slices.Sorted(maps.Keys(children)) {
		o := OpResult{Name: name, Data: children[name]}
		former = o.append(former)
		f.size += int32(len(o.Data))
	}
	f.results = slices.Concat(former, f.results)
	if f.undo != nil {
		f.undo.since += len(former)
	}
}

// forgetResults removes results, so that the operations are called again. keepChildren says that the former
// children of these operations are kept, which earlier versions did not.
func forgetResults(f *Flow, keepChildren bool, drop func(at int, o *OpResult) bool) {
	former := map[string][]byte{} // of the operations that are removed, by the name of their result
	if keepChildren {
		for at, o := range resultsAt(f.results) {
			if c, ok := o.former(); ok && drop(at, &o) {
				former[FormerKind+":"+OpName(o.Name)] = c.append(nil)
			}
		}
	}
	removeResults(f, drop)
	addFormer(f, former)
}

// removeResults removes results.
func removeResults(f *Flow, drop func(at int, o *OpResult) bool) {
	var kept []byte
	before := 0 // bytes of the results that are kept, of those before undo.since
	for at, o := range resultsAt(f.results) {
		if drop(at, &o) {
			f.size -= int32(len(o.Data) + len(o.Text))
			f.attempts -= int32(o.Attempts)
			continue
		}
		if kept = o.append(kept); f.undo != nil && at < f.undo.since {
			before = len(kept)
		}
	}
	f.results = kept
	if f.undo != nil {
		f.undo.since = before
	}
}

// forgetUndone forgets the results of operations that were undone, and of their undos, and the
// failures since the run began to undo, so that a retry of the run calls the operations again.
func forgetUndone(f *Flow, keepChildren bool) {
	if f.undo == nil || !f.undo.done {
		return
	}
	undone := map[string]bool{}
	for o := range ReadResults(f.results) {
		if isUndo(o.Name) {
			undone[OpName(o.Name)] = true
		}
	}
	forgetResults(f, keepChildren, func(at int, o *OpResult) bool {
		return isUndo(o.Name) || OpKindOf(o.Name).CanUndo && undone[OpName(o.Name)] || at >= f.undo.since && o.Reason != 0
	})
	f.undo, f.undoable = nil, 0
	f.undos++
}
