package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/internal/machine"
)

// A run never executes code that does not fit what it has done before. The rule is: an operation is
// new if it is neither stored nor pending. A new operation is held until every other branch waits or
// has ended. If the function has not called a stored or pending operation by then, the run is
// parked, and nothing is executed.

// Renamed says that an operation has another name since an earlier version of the function. Runs
// with a stored result of the old name use it for the new name. A run that waits for a signal of the
// old name gets one of either name. Call it at the beginning of the function, without a condition. A
// name with a key is written as name[key].
func Renamed(f *Flow, before, now string) {
	f.renameStored(before, now)
	f.call.sh.handlers.noteRenamed(f.call.workflow, before, now)
}

// Removed says that the function does not call operations with these names any more. Their stored
// results are not used, and a run that waits in such an operation continues. A name with a key is
// written as name[key]; that of a [Map] includes its operations. Call it at the beginning of the
// function, without a condition: a run that waits is called again when a call of the function has
// said the name.
func Removed(f *Flow, names ...string) {
	f.removed = append(f.removed, names...)
	f.call.sh.handlers.noteRemoved(f.call.workflow, names)
}

// Added says that the function calls operations with these names since an earlier version. A run
// that has passed the place of such an operation executes it when it is called again. Without
// Added, such a run waits in state needs-handler. A run that has not come to that place, or
// has executed the operation already, needs no Added. A name with a key is written as name[key]; that
// of a [Map] includes its operations.
func Added(f *Flow, names ...string) {
	f.added = append(f.added, names...)
}

// isCalled reports whether the function calls the operation itself. A retry forgets operations that
// were skipped, and the engine calls undos.
func isCalled(identity string) bool {
	return !strings.HasPrefix(identity, machine.UndoKind+":") && !strings.HasPrefix(identity, machine.SkipKind+":")
}

// hold decides whether the flows, all of a call that can continue, may begin their new
// operations. If not, it notes why, and the call of the function ends.
func hold(flows []*Flow) {
	for _, f := range flows {
		if f.held != "" && isCalled(f.held) && !slices.Contains(f.added, label(f.held)) && f.canBegin() {
			if err := f.mismatch(f.held); err != nil {
				_ = f.call.noteWrong(err)
			}
			return
		}
	}
}

// mismatch returns an error if the run has an operation that the function should have called before
// the new one with this identity; "" stands for the end of the function.
func (f *Flow) mismatch(identity string) error {
	if f.found >= f.known { // else a retry may have taken some back
		return nil
	}
	missing := f.unasked(identity != "")
	if missing == "" {
		if f.call.declared == nil {
			f.known = f.found // the others may be missing at the end, too
		}
		return nil
	}
	kind, name := splitIdentity(missing)
	const remedy = "deploy code that calls it, or that says engine.Renamed or engine.Removed"
	if identity == "" {
		return fmt.Errorf("the run has a stored operation %q that the function did not call: %s", name, remedy)
	}
	now, next := splitIdentity(identity)
	if next == name {
		return fmt.Errorf("operation %s: is of kind %s, but the stored operation is of kind %s: use another name, and engine.Removed for the stored one", name, now, kind)
	}
	return fmt.Errorf("the run has a stored operation %q that the function did not call before the new operation %q: %s; or engine.Added, to execute %q now", name, next, remedy, next)
}

// unasked returns the identity of the earliest operation, stored or pending, that the function did not call
// and that must not be missing; "" if there is none. isHeld says that the function has not ended.
func (f *Flow) unasked(isHeld bool) string {
	missing, earliest := "", math.MaxInt
	var takenBack []machine.TakenBack
	isRead := false
	add := func(identity string, number int) {
		if !isCalled(identity) || f.asked.get(identity) {
			return
		}
		kind, name := splitIdentity(identity)
		if mapped, index := cutIndex(name); index != "" && isItemKind(kind) {
			if f.asked.get("map:"+mapped) || f.asked.get(childrenKind+":"+mapped) {
				return
			}
			name = mapped
		}
		if slices.Contains(f.removed, name) || isHeld && f.isDeclared(name) || f.asked.get(machine.SkipKind+":"+name) {
			return
		}
		if !isRead {
			takenBack, isRead = f.takenBack(), true
		}
		mayBeMissing := func(t machine.TakenBack) bool { return t.Number < number && number <= t.Last }
		if _, pending := f.pending[identity]; number < earliest && (pending || !slices.ContainsFunc(takenBack, mayBeMissing)) {
			missing, earliest = kind+":"+name, number
		}
	}
	for identity, res := range f.ended.all {
		add(identity, res.Number)
	}
	for identity, number := range f.pending {
		add(identity, number)
	}
	return missing
}

// hasFailedAdded reports whether an operation that Added names has failed. It is executed before
// others that the run has called, so the function may end without them.
func (f *Flow) hasFailedAdded() bool {
	for identity, res := range f.ended.all {
		name, _ := cutIndex(label(identity))
		if res.Reason != 0 && slices.Contains(f.added, name) {
			return true
		}
	}
	return false
}

// isDeclared reports whether the description of the function has the operation: so the function
// calls it later, or says that it skips it. That of a wait for a signal has its name as a key.
func (f *Flow) isDeclared(name string) bool {
	base, key, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	return slices.ContainsFunc(f.call.declared, func(o machine.DeclaredOp) bool { return o.Name == base || o.Name == key })
}

// takenBack returns the operations that retries of the run took back. Stored operations between one of
// them and its retry may have followed from it, and it is called again.
func (f *Flow) takenBack() []machine.TakenBack {
	c := f.call
	if c.history == nil {
		return nil
	}
	known := make([]bool, c.count+1)
	for res := range machine.ReadResults(c.results) {
		known[res.Number] = true
	}
	for _, number := range c.pending {
		known[number] = true
	}
	return machine.ReadTakenBack(c.history, c.count, func(number int) bool { return known[number] })
}

// renameStored gives stored operations the new name.
func (f *Flow) renameStored(before, now string) {
	f.renamed = append(f.renamed, [2]string{before, now})
	renamed := func(identity string) (string, bool) {
		kind, name := splitIdentity(identity)
		if mapped, index := cutIndex(name); index != "" && isItemKind(kind) {
			return kind + ":" + now + "#" + index, mapped == before
		}
		return kind + ":" + now, name == before
	}
	f.ended.rename(func(identity string) string {
		name, ok := renamed(identity)
		if !ok {
			return identity
		}
		if f.asked.get(identity) {
			f.asked.others.set(identity, true) // the position of its result is not valid any more
		}
		return name
	})
	for identity, n := range f.pending {
		if name, ok := renamed(identity); ok {
			delete(f.pending, identity)
			f.pending[name] = n
		}
	}
	for identity, former := range f.former {
		if name, ok := renamed(identity); ok {
			delete(f.former, identity)
			f.former[name] = former
		}
	}
}
