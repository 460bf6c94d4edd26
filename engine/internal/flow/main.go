package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// main calls the function, and reports the end of the call to the owner. It is the first function
// of its goroutine.
func (c *call) main() {
	defer c.settings.Running.Done()
	if w := c.settings.Watch; w != nil {
		defer w.Begin(goroutine.Function)()
	}
	var end callEnd
	var f *Flow
	returned := false
	defer func() { // also when the goroutine ends by runtime.Goexit
		if !returned {
			end.result = &machine.Result{Failed: true, Error: "the function ended its goroutine (runtime.Goexit)"}
		}
		_, failure, hasQuit := c.branches.Load().failure()
		switch {
		case c.exiting.Load():
			end = c.stopEnd()
		case failure != "" && c.undoing.Load() && hasQuit:
			// Operations of other branches must end before they are undone.
			end = callEnd{result: &machine.Result{Release: true, Error: ErrUndoing.Error()}}
		default:
			if failure != "" {
				end = callEnd{result: &machine.Result{Failed: true, Error: c.settings.ErrorText(failure)}}
			}
			if f != nil && (c.toUndo.Load() || c.needsUndo(f, &end)) {
				c.toUndo.Store(true)
				c.settings.Running.Add(1)
				go c.undoMain(f, end)
				return
			}
		}
		c.reportOnce(end)
	}()
	goroutine.GrowStack()
	input, err := c.completeInput()
	if err != nil {
		c.exitIfStopped()
		end.result = &machine.Result{Failed: true, Outcome: retry.OutcomeOf(err), Error: c.settings.ErrorText(err.Error())}
		returned = true
		return
	}
	f = c.newFlow()
	end = c.result(f, func() ([]byte, error) {
		return c.settings.Registry.Callable(c.workflow, c.handler()).(Function)(f, input)
	})
	returned = true
}

// completeInput returns the input for the function: a GaveUp that is stored by reference is
// completed from the dead run.
func (c *call) completeInput() (json.RawMessage, error) {
	if !workflow.IsReference(c.task.Input) {
		return c.task.Input, nil
	}
	ctx, cancel := c.context()
	defer cancel()
	return c.settings.Host.CompleteInput(ctx, c.task.Input)
}

// newFlow returns the Flow of the call, with the stored results.
func (c *call) newFlow() *Flow {
	var both struct { // one allocation
		Flow
		state state
	}
	f := &both.Flow
	f.call, f.state = c, &both.state
	if c.settings.Watch != nil {
		f.routine = goroutine.ID()
	}
	both.state.pending, both.state.count, both.state.former = c.pending, c.count, c.former
	f.ended.stored.Init(c.results, c.count)
	f.asked.results = &f.ended
	f.known = c.count
	return f
}

// result calls the function and returns how the call ended.
func (c *call) result(f *Flow, call func() ([]byte, error)) (end callEnd) {
	defer func() {
		if p := recover(); p != nil {
			end = callEnd{result: &machine.Result{Failed: true, Error: c.settings.ErrorText(fmt.Sprintf("panic: %v\n%s", p, goroutine.PanicStack()))}}
		}
	}()
	out, err := call()
	if wrong := c.firstWrong(); wrong != nil {
		return callEnd{mismatch: wrong.Error()}
	}
	if why := f.mismatch(""); why != nil && (err == nil || !f.hasFailedAdded()) {
		if err != nil {
			why = fmt.Errorf("%w; the function returned the error: %w", why, err)
		}
		return callEnd{mismatch: why.Error()}
	}
	if next, ok := errors.AsType[*workflow.Again](err); ok {
		var input json.RawMessage
		if input, err = c.workflow.NextInput(next.Input, c.settings.MaxPayload); err == nil {
			return callEnd{again: input, keepDone: next.KeepDone, undoable: f.undoable()}
		}
	}
	if err == nil && len(out) > c.settings.MaxPayload {
		err = fmt.Errorf("output of the function: %d bytes, at most %d can be stored; store it elsewhere and return a reference", len(out), c.settings.MaxPayload)
	}
	if err != nil {
		redo, reason := f.failures(err)
		return callEnd{isError: true, result: &machine.Result{
			Failed: true, Outcome: retry.Outcome{Class: retry.ClassPermanent}, Error: c.settings.ErrorText(err.Error()), Redo: machine.EncodeRedo(redo), Reason: reason, Code: workflow.CodeOf(err),
		}}
	}
	return callEnd{result: &machine.Result{Output: out}}
}

// needsUndo reports whether the call has to undo operations after the function has ended in this
// way.
func (c *call) needsUndo(f *Flow, end *callEnd) bool {
	switch {
	case c.undoing.Load():
		return end.mismatch == "" && !end.quiet
	case end.result == nil || !end.isError:
		return false
	}
	return slices.ContainsFunc(f.undoers, func(u undoer) bool { return len(u.called(f)) > 0 })
}

// undoMain undoes the operations of the run after its function has ended. It is the first function
// of its goroutine.
func (c *call) undoMain(f *Flow, why callEnd) {
	defer c.settings.Running.Done()
	var end callEnd
	defer func() { // also when the goroutine ends by runtime.Goexit
		if c.exiting.Load() {
			end = c.stopEnd()
		}
		c.reportOnce(end)
	}()
	if !c.undoing.Load() {
		c.send(&Message{kind: functionFailed, call: c, result: why.result})
	}
	end = f.undoAll()
}

// stop makes the goroutine end when it calls the next operation, or at once if it waits for one.
// If the run is over, a function that does neither has the grace time.
func (c *call) stop(cause error) {
	c.once.Do(func() {
		c.cause = cause
		close(c.stopped)
	})
	if !errors.Is(cause, ErrRunOver) {
		return // the function has no context that tells it to end
	}
	c.grace.Do(func() {
		time.AfterFunc(c.settings.Grace, func() {
			inAttempt := c.inAttempt.Load() // which reports itself that it is stuck
			c.leftToAttempt.Store(inAttempt)
			if !c.ended.CompareAndSwap(false, true) {
				return
			}
			if inAttempt {
				c.report(c.stopEnd())
				return
			}
			c.settings.Host.Stuck(c.run, c.number)
			c.report(callEnd{result: &machine.Result{
				Failed: true, Outcome: retry.Outcome{Class: retry.ClassStuck},
				Error: fmt.Sprintf("the function has not called an operation or returned for %v after its call was stopped: %v", c.settings.Grace, cause),
			}})
		})
	})
}

// reportOnce sends the end of the call to the owner, unless stop has done so.
func (c *call) reportOnce(end callEnd) {
	switch {
	case c.ended.CompareAndSwap(false, true):
		if !end.quiet {
			c.report(end)
		}
	case !c.leftToAttempt.Load():
		c.settings.Host.Returned(c.run, c.number)
	}
}

// report sends the end of the call to the owner. The caller must have set ended.
func (c *call) report(end callEnd) {
	c.end, c.message = end, Message{kind: callEnded, call: c}
	c.settings.Host.Send(&c.message, nil)
}

// stopEnd returns the end of a call that ended at an operation.
func (c *call) stopEnd() callEnd {
	select {
	case <-c.stopped:
	default:
		if wrong := c.firstWrong(); wrong != nil { // no operation begins after it
			return callEnd{mismatch: wrong.Error()}
		}
		return callEnd{result: &machine.Result{Release: true, Error: "an operation ended the goroutine of the function (runtime.Goexit)"}}
	}
	switch {
	case errors.Is(c.cause, errSuspended):
		return callEnd{quiet: true}
	case errors.Is(c.cause, ErrRunOver):
		return callEnd{result: &machine.Result{Failed: true, Error: c.cause.Error()}}
	}
	return callEnd{result: &machine.Result{Release: true, Error: c.cause.Error()}}
}

// ErrRunOver stops a call, and cancels the attempts of its run, because the run is over.
var ErrRunOver = fmt.Errorf("the run is over: %w", context.Canceled)

// CanUndo notes how the operations of a group are undone. It must be called before they begin.
func (f *Flow) CanUndo(g *Group, o Called, isNil bool, execute func(ctx context.Context, i int, stored []byte) error) error {
	if isNil {
		return f.Misuse(o.Identity, errors.New("undo: no function"))
	}
	g.undoable = true
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
func (u *undoer) undo(f *Flow) *Group {
	items := u.called(f)
	return &Group{
		Name: machine.UndoKind + ":" + machine.OpName(u.group.Name), kind: machine.OpKindOf(machine.UndoKind), def: u.def, n: len(items), parallel: u.group.parallel, isMap: u.group.isMap, items: items,
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
func (f *Flow) undoAll() callEnd {
	registered := 0
	for i := range f.undoers {
		registered += len(f.undoers[i].called(f))
	}
	if most := f.call.undoable.Load(); int32(registered) < most {
		return callEnd{mismatch: fmt.Sprintf("the run has called %d operations that can be undone, and the function knows how to undo only %d of them: deploy code that calls all by DoUndo or MapUndo", most, registered)}
	}
	f.sortUndoers()
	for _, u := range slices.Backward(f.undoers) {
		g := u.undo(f)
		if g.n == 0 {
			continue
		}
		if err := f.Perform(g); err != nil {
			return callEnd{undone: &undone{text: err.Error()}}
		}
		var redo []int
		text := ""
		for i := range g.Results {
			if res := &g.Results[i]; res.Reason != 0 {
				redo = append(redo, res.Number)
				text = fmt.Sprintf("the undo of %s failed: %s", machine.OpName(res.Name), res.Text)
			}
		}
		if text != "" {
			return callEnd{undone: &undone{text, machine.EncodeRedo(redo)}}
		}
	}
	return callEnd{undone: new(undone)}
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
			names = append(names, machine.OpName(u.group.Name))
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
