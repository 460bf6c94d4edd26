package flow

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// A run never executes code that does not fit what it has done before. The rule is: an operation is
// new if it is neither stored nor pending. A new operation is held until every other branch waits or
// has ended. If the function has not called a stored or pending operation by then, the run is
// parked, and nothing is executed.

// isCalled reports whether the function calls the operation itself. A retry forgets operations that
// were skipped, and the engine calls undos.
func isCalled(identity string) bool {
	return !machine.OpKindOf(identity).IsOptional
}

// hold decides whether the flows, all of a call that can continue, may begin their new
// operations. If not, it notes why, and the call of the function ends.
func hold(flows []*Flow) {
	for _, f := range flows {
		if f.held != "" && isCalled(f.held) && !slices.Contains(f.added, machine.OpName(f.held)) && f.canBegin() {
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
		if f.declared() == nil {
			f.known = f.found // the others may be missing at the end, too
		}
		return nil
	}
	kind, name := machine.SplitIdentity(missing)
	const remedy = "deploy code that calls it, or that says engine.Renamed or engine.Removed"
	if identity == "" {
		return fmt.Errorf("the run has a stored operation %q that the function did not call: %s", name, remedy)
	}
	now, next := machine.SplitIdentity(identity)
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
		named, missed := f.isMissed(identity, isHeld)
		if !missed || number >= earliest {
			return
		}
		if !isRead {
			takenBack, isRead = f.takenBack(), true
		}
		mayBeMissing := func(t machine.TakenBack) bool { return t.Number < number && number <= t.Last }
		if _, pending := f.pending[identity]; pending || !slices.ContainsFunc(takenBack, mayBeMissing) {
			missing, earliest = named, number
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

// isMissed reports whether the function did not call an operation of the run, and has not said that it
// does not call it. named is the identity that errors have: that of the map, for one of its items.
func (f *Flow) isMissed(identity string, isHeld bool) (named string, missed bool) {
	if !isCalled(identity) || f.asked.get(identity) {
		return "", false
	}
	kind, name := machine.SplitIdentity(identity)
	if mapped, index := machine.CutIndex(name); index != "" && machine.OpKindOf(kind).IsItem {
		if f.asked.get(machine.MapKind+":"+mapped) || f.asked.get(machine.ChildrenKind+":"+mapped) {
			return "", false
		}
		name = mapped
	}
	if slices.Contains(f.removed, name) || isHeld && f.isDeclared(name) || f.asked.get(machine.SkipKind+":"+name) {
		return "", false
	}
	return kind + ":" + name, true
}

// hasFailedAdded reports whether an operation that Added names has failed. It is executed before
// others that the run has called, so the function may end without them.
func (f *Flow) hasFailedAdded() bool {
	for identity, res := range f.ended.all {
		name, _ := machine.CutIndex(machine.OpName(identity))
		if res.Reason != 0 && slices.Contains(f.added, name) {
			return true
		}
	}
	return false
}

// handler returns the handler of the function.
func (c *call) handler() string { return c.def.Steps[0].Handler }

// declared returns the operations that a function calls which is described by data; nil for others.
func (f *Flow) declared() []info.DeclaredOp {
	if c := f.call; strings.HasPrefix(c.handler(), workflow.FunctionPrefix) {
		return c.def.Ops
	}
	return nil
}

// isDeclared reports whether the description of the function has the operation: so the function
// calls it later, or says that it skips it. That of a wait for a signal has its name as a key.
func (f *Flow) isDeclared(name string) bool {
	base, key, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	return slices.ContainsFunc(f.declared(), func(o info.DeclaredOp) bool { return o.Name == base || o.Name == key })
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

// canBegin reports whether no undo keeps the flow from beginning new operations, and no failure of a branch beside
// this one, or beside one that it is part of.
func (f *Flow) canBegin() bool {
	for b := f.branch; b != nil; b = b.set.parent.branch {
		if b.set.failed {
			return false
		}
	}
	return !f.call.undoing.Load()
}

// Removed says that the function does not call operations with these names any more.
func (f *Flow) Removed(names []string) {
	f.removed = append(f.removed, names...)
	f.call.settings.Registry.NoteRemoved(f.call.workflow, names)
}

// Added says that the function calls operations with these names since an earlier version.
func (f *Flow) Added(names []string) { f.added = append(f.added, names...) }

// Renamed says that an operation has another name since an earlier version: it gives stored operations the new
// name.
func (f *Flow) Renamed(before, now string) {
	f.call.settings.Registry.NoteRenamed(f.call.workflow, before, now)
	f.renamed = append(f.renamed, [2]string{before, now})
	renamed := func(identity string) (string, bool) {
		kind, name := machine.SplitIdentity(identity)
		if mapped, index := machine.CutIndex(name); index != "" && machine.OpKindOf(kind).IsItem {
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
	renameKeys(f.pending, renamed)
	renameKeys(f.former, renamed)
}

// renameKeys gives the operations of a map the identities that renamed returns for them.
func renameKeys[V any](m map[string]V, renamed func(identity string) (string, bool)) {
	for identity, v := range m {
		if name, ok := renamed(identity); ok {
			delete(m, identity)
			m[name] = v
		}
	}
}

// earlierNames returns the identities that an operation had before [Renamed].
func (f *Flow) earlierNames(identity string) (list []string) {
	kind, name := machine.SplitIdentity(identity)
	mapped, index := machine.CutIndex(name)
	for _, r := range slices.Backward(f.renamed) {
		switch {
		case r[1] == name:
			name = r[0]
		case r[1] == mapped && index != "":
			mapped = r[0]
			name = mapped + "#" + index
		default:
			continue
		}
		list = append(list, kind+":"+name)
	}
	return list
}

// The errors of wrong uses of a [Flow]: see package engine.
var (
	ErrSameOperation   = errors.New("called twice")
	ErrSecondGoroutine = errors.New("called from a second goroutine; use engine.Map or engine.Branches for operations side by side")
	ErrOtherBranch     = errors.New("called with the flow of another branch; a branch must use the flow that it gets")
	ErrFlowInOperation = errors.New("called inside another operation; an operation can't use the flow")
	ErrFlowOver        = errors.New("the call of the function is over")
)

// errOverlap is the error of an operation that is called before the flow's last one is over.
var errOverlap error = overlapError{}

type overlapError struct{}

func (overlapError) Error() string {
	return "called before the last operation of the flow is over: inside that operation, from a second goroutine or in another branch; use engine.Map or engine.Branches for operations side by side"
}

func (overlapError) Is(target error) bool {
	return target == ErrSecondGoroutine || target == ErrFlowInOperation || target == ErrOtherBranch
}

// missingWorkflowError says that a child can't be started, because its workflow is not registered.
type missingWorkflowError struct{ name string }

func (e *missingWorkflowError) Error() string {
	return fmt.Sprintf("there is no workflow %q now", e.name)
}

// firstWrong returns the first wrong use of the flow.
func (c *call) firstWrong() error {
	if wrong := c.wrong.Load(); wrong != nil {
		return *wrong
	}
	return nil
}

// noteWrong notes a wrong use of the flow, and returns it. After the end of the call, it only returns it.
func (c *call) noteWrong(err error) error {
	if !errors.Is(err, ErrFlowOver) {
		c.wrong.CompareAndSwap(nil, &err)
	}
	return err
}

// noteMissingWorkflow notes that the workflow of the child of an operation is not registered.
func (c *call) noteMissingWorkflow(g *Group, i int) {
	_ = c.noteWrong(fmt.Errorf("operation %s: %w", machine.OpName(g.identity(i)), &missingWorkflowError{g.child.def.Name}))
}

// Misuse notes a wrong use of the flow by an operation, and returns it as an error.
func (f *Flow) Misuse(identity string, err error) error {
	return f.call.noteWrong(fmt.Errorf("operation %s: %w", machine.OpName(identity), err))
}
