package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// DoUndo is [Do] for an operation that can be undone. If the function returns an error later, or
// the run is canceled or times out, the run is in state undoing: the undos of all operations that
// it has called are executed, the last one first. Then the run ends.
//
// undo gets the result of the operation, or nil if that is not known: the operation failed, or was
// canceled. An attempt of it may have had an effect or not, so undo must accept both.
//
// An undo is an operation, with the options of the operation that it undoes, and [UndoPolicy]. If
// it gives up, the run is dead with the reason undo-failed, and [Engine.Retry] continues with this
// undo. A function that panics until its policy gives up has a bug: its run is dead, and undoes
// nothing before [Engine.Undo].
func DoUndo[T any](f *Flow, name string, do func(context.Context) (T, error), undo func(context.Context, *T) error, opts ...StepOption) (v T, err error) {
	o, err := f.operation("do"+withUndo, name, opts)
	if err != nil {
		return v, err
	}
	defer f.busy.Store(false)
	g := &opGroup{name: o.identity, def: o.def, n: 1, parallel: 1, undoable: true, do: func(ctx context.Context, _ int) ([]byte, error) { return encoded(do(ctx)) }}
	err = f.canUndo(g, o, undo == nil, func(ctx context.Context, _ int, stored []byte) error {
		v, err := storedValue[T](stored)
		if err != nil {
			return err
		}
		return undo(ctx, v)
	})
	if err != nil {
		return v, err
	}
	if err := f.perform(g); err != nil {
		return v, err
	}
	return decoded[T](&g.results[0])
}

// MapUndo is [Map] for operations that can be undone: see [DoUndo]. The undos of one MapUndo are
// executed side by side, as its operations are.
func MapUndo[T, R any](f *Flow, name string, items []T, do func(context.Context, T) (R, error), undo func(context.Context, T, *R) error, opts ...StepOption) ([]R, error) {
	o, g, err := newMap(f, "map"+withUndo, name, items, do, opts)
	if err != nil {
		return nil, err
	}
	defer f.busy.Store(false)
	g.undoable = true
	err = f.canUndo(g, o, undo == nil, func(ctx context.Context, i int, stored []byte) error {
		v, err := storedValue[R](stored)
		if err != nil {
			return err
		}
		return undo(ctx, items[i], v)
	})
	if err != nil {
		return nil, err
	}
	if err := f.perform(g); err != nil {
		return nil, err
	}
	return mapResults[R](g)
}

// UndoPolicy sets the retry policy of the undo of an operation, in its text form: see [DoUndo].
// Without it the undo has the policy of the operation.
func UndoPolicy(text string) StepOption {
	return func(s *stepBuilder) {
		if _, err := retry.Parse(text); err != nil {
			s.errs = append(s.errs, fmt.Errorf("undo policy: %w", err))
		}
		s.undoPolicy = text
	}
}

// withUndo is added to the kind of an operation that can be undone, when its options are checked.
const withUndo = "+undo"

// undoOperation returns the definition of the undo of an operation with these options. policy is
// that of the undo; "" means that of the operation.
func (w *Workflow) undoOperation(name, policy string, opts []StepOption) (*machine.Definition, error) {
	if policy != "" {
		opts = append(slices.Clip(opts), Policy(policy))
	}
	var b stepBuilder
	if _, err := w.operation(&b, "map"+withUndo, name, opts); err != nil {
		return nil, err
	}
	return w.opDefinition(&b)
}

// storedValue returns a stored result; nil if there is none.
func storedValue[T any](stored []byte) (*T, error) {
	if stored == nil {
		return nil, nil
	}
	v := new(T)
	if err := json.Unmarshal(stored, v); err != nil {
		return nil, retry.Permanent(fmt.Errorf("the stored result of the operation can't be read as %T: %w", *v, err))
	}
	return v, nil
}

// undoer is what undoes the operations of a group.
type undoer struct {
	group   *opGroup
	def     *machine.Definition
	execute func(ctx context.Context, i int, stored []byte) error
	first   int // see firstNumber; valid in sortUndoers
}

// canUndo notes how the operations of a group are undone. It must be called before they begin.
func (f *Flow) canUndo(g *opGroup, o operation, isNil bool, execute func(ctx context.Context, i int, stored []byte) error) error {
	if isNil {
		return f.misuse(o.identity, errors.New("undo: no function"))
	}
	f.undoers = append(f.undoers, undoer{group: g, def: o.undo, execute: execute})
	return nil
}

// called returns the items of the group whose operations the run has called.
func (u *undoer) called(f *Flow) (items []int) {
	for i := range u.group.n {
		if f.ended.has(u.group.identity(i)) {
			items = append(items, i)
		}
	}
	return items
}

// undo returns the group of operations that undo those of the group.
func (u *undoer) undo(f *Flow) *opGroup {
	items := u.called(f)
	return &opGroup{
		name: machine.UndoKind + ":" + label(u.group.name), def: u.def, n: len(items), parallel: u.group.parallel, isMap: u.group.isMap, items: items, isUndo: true,
		do: func(ctx context.Context, k int) ([]byte, error) {
			i := items[k]
			var stored []byte
			if res := f.ended.get(u.group.identity(i)); res.Reason == 0 {
				stored = res.Data
			}
			if err := u.execute(ctx, i, stored); err != nil {
				return nil, err
			}
			return []byte("null"), nil
		},
	}
}

// undoAll undoes the operations that the run has called, the last one first. It stops at an undo
// that gives up.
func (f *Flow) undoAll() flowEnd {
	registered := 0
	for i := range f.undoers {
		registered += len(f.undoers[i].called(f))
	}
	if most := f.call.undoable.Load(); int32(registered) < most {
		return flowEnd{mismatch: fmt.Sprintf("the run has called %d operations that can be undone, and the function knows how to undo only %d of them: deploy code that calls all by DoUndo or MapUndo", most, registered)}
	}
	f.sortUndoers()
	for _, u := range slices.Backward(f.undoers) {
		g := u.undo(f)
		if g.n == 0 {
			continue
		}
		if err := f.perform(g); err != nil {
			return flowEnd{undone: &undone{text: err.Error()}}
		}
		var redo []int
		text := ""
		for i := range g.results {
			if res := &g.results[i]; res.Reason != 0 {
				redo = append(redo, res.Number)
				text = fmt.Sprintf("the undo of %s failed: %s", label(res.Name), res.Text)
			}
		}
		if text != "" {
			return flowEnd{undone: &undone{text, machine.EncodeRedo(redo)}}
		}
	}
	return flowEnd{undone: new(undone)}
}

// sortUndoers orders the undoers as the run has called their operations first, if the function has
// branches: in which order these call them is not the same when the function is called again.
func (f *Flow) sortUndoers() {
	if f.call.branches.Load() == nil {
		return
	}
	for i := range f.undoers {
		f.undoers[i].first = f.undoers[i].firstNumber(f)
	}
	slices.SortStableFunc(f.undoers, func(a, b undoer) int { return cmp.Compare(a.first, b.first) })
}

// undoable returns the names of the operations that the run has called and the function can undo.
func (f *Flow) undoable() string {
	var names []string
	for i := range f.undoers {
		if u := &f.undoers[i]; len(u.called(f)) > 0 {
			names = append(names, label(u.group.name))
		}
	}
	return strings.Join(names, ", ")
}

// firstNumber returns the smallest number of the operations of the group; 0 if the run has called none.
func (u *undoer) firstNumber(f *Flow) int {
	first := 0
	for i := range u.group.n {
		if res := f.ended.get(u.group.identity(i)); res != nil && (first == 0 || res.Number < first) {
			first = res.Number
		}
	}
	return first
}

// undone says how the undos of a run ended.
type undone struct {
	text string // why an undo failed; "" if none did
	redo []byte // the undos that a retry calls again
}

// exitToUndo ends the goroutine of the function. Then undoMain undoes the operations.
func (c *flowCall) exitToUndo() {
	c.toUndo.Store(true)
	runtime.Goexit()
}

// needsUndo reports whether the call has to undo operations after the function has ended in this
// way.
func (c *flowCall) needsUndo(f *Flow, end *flowEnd) bool {
	switch {
	case c.undoing.Load():
		return end.mismatch == "" && !end.quiet
	case end.result == nil || !end.isError:
		return false
	}
	return slices.ContainsFunc(f.undoers, func(u undoer) bool { return len(u.called(f)) > 0 })
}

// forgetsUndo reports whether the function has returned before it knew that the run undoes its
// operations: it has to be called again.
func (e *flowEnd) forgetsUndo() bool {
	return e.undone == nil && e.mismatch == "" && (e.again != nil || e.isError || e.result.Succeeded())
}

// undoMain undoes the operations of the run after its function has ended. It is the first function
// of its goroutine.
func (c *flowCall) undoMain(f *Flow, why flowEnd) {
	defer c.sh.attempts.Done()
	var end flowEnd
	defer func() { // also when the goroutine ends by runtime.Goexit
		if c.exiting.Load() {
			end = c.stopEnd()
		}
		switch {
		case !c.ended.CompareAndSwap(false, true):
			c.sh.dispatcher.handlerReturned(c.stuckHandler())
		case !end.quiet:
			c.report(end)
		}
	}()
	if !c.undoing.Load() {
		c.send(func(t *turn) error { t.o.sh.dispatcher.failCall(c, why.result); return nil })
	}
	end = f.undoAll()
}

// failCall records that a run undoes its operations, because its function has returned an error.
func (d *dispatcher) failCall(c *flowCall, res *machine.Result) {
	run, ok := d.o.m.Run(c.run)
	if !ok || d.flows[c.run] != c || run.Outcome != machine.Undecided || run.IsUndoing() {
		return
	}
	d.recordStatus(c, run)
	rec := d.o.m.Fail(run, res, d.o.turn.now)
	d.o.turn.must(&rec)
}

var errUndoing = errors.New("the run undoes its operations")

// beginUndo stops what a run does that undoes its operations from now on.
func (d *dispatcher) beginUndo(run *machine.Run) {
	for n := range run.Live() {
		if a := d.running[attemptKey{run.ID, n}]; a != nil && n > 0 && !run.IsUndo(n) {
			d.stops = append(d.stops, stop{a, errUndoing})
		}
	}
	d.o.turn.cancelChildren(run)
	c := d.flows[run.ID]
	if c == nil {
		return
	}
	c.undoable.Store(int32(run.Undoable()))
	c.undoing.Store(true)
	for _, number := range slices.Collect(c.ops.numbers) {
		if run.Step(number) == nil { // it has ended with the record
			item, _ := c.ops.get(number)
			c.ops.remove(number)
			item.running--
			item.setResult(item.index, storedResult(run, number, item.identity(item.index)))
		}
	}
	for g := range c.groups.all {
		if d.flows[run.ID] == c { // else it is suspended
			d.continueGroup(c, g)
		}
	}
}

// endUndo records how the undos of a run ended.
func (d *dispatcher) endUndo(run *machine.Run, u *undone) {
	if !run.IsUndoing() || run.Outcome != machine.Undecided {
		return
	}
	rec := d.o.m.Undone(run, d.sh.errorText(u.text), u.redo, d.o.turn.now)
	d.o.turn.must(&rec)
}

// Undo undoes the operations of a dead run that have an undo, for example after a bug made its
// function panic: see [DoUndo]. The run is dead again then.
func (e *Engine) Undo(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opUndo, By: by})
}

// Abandon is [Engine.Cancel] that does not undo the operations of the run, and ends a run that is
// undoing them at once.
func (e *Engine) Abandon(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opAbandon, By: by})
}
