package flow

import (
	"context"
	"errors"
	"runtime"

	"github.com/tideover/tideover/engine/internal/goroutine"
)

// enter checks that the flow is used as it must be, and marks it as busy. It ends the goroutine if the
// call is stopped or the flow was used wrongly before. After success the caller must clear Flow.busy.
func (f *Flow) enter() error {
	c := f.call
	if c.exiting.Load() || c.ended.Load() || c.toUndo.Load() || f.over.Load() {
		return ErrFlowOver
	}
	if w := c.settings.Watch; w != nil {
		if err := f.checkGoroutine(w); err != nil {
			return err
		}
	}
	if !f.busy.CompareAndSwap(false, true) {
		if f.call.branches.Load().areInside(f) {
			return ErrOtherBranch
		}
		return errOverlap // it is called before the flow's last operation is over
	}
	c.exitIfStopped()
	if c.firstWrong() != nil {
		c.exit()
	}
	return nil
}

// checkGoroutine returns an error if the goroutine that calls an operation must not use the flow. Only
// package enginetest has this checked; without it, errOverlap finds the mistakes that do harm at once.
func (f *Flow) checkGoroutine(w *goroutine.Watch) error {
	switch id, work := w.Current(); {
	case work == goroutine.Operation:
		return ErrFlowInOperation
	case work == goroutine.Function && f.routine == id:
		return nil
	case work == goroutine.Function && f.call.branches.Load().runsIn(id):
		return ErrOtherBranch
	}
	return ErrSecondGoroutine // also if it is that of the function of another run
}

// exit ends the goroutine. Deferred calls of the function run.
func (c *call) exit() {
	c.exiting.Store(true)
	c.branches.Load().stop()
	runtime.Goexit()
}

// exitIfStopped ends the goroutine if the owner has stopped the call.
func (c *call) exitIfStopped() {
	select {
	case <-c.stopped:
		c.exit()
	default:
	}
}

// errShardStopped stops a call when the owner of its shard has stopped.
var errShardStopped = errors.New("the shard has stopped")

// send sends a message to the owner, without waiting for an answer. It ends the goroutine if the owner has
// stopped the call, or has stopped itself.
func (c *call) send(m *Message) {
	if !c.settings.Host.Send(m, c.stopped) {
		c.once.Do(func() { c.cause = errShardStopped; close(c.stopped) })
		c.exit()
	}
}

// context returns a context that ends when the owner stops the call. The caller must call cancel.
func (c *call) context() (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		select {
		case <-c.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// leaveIfQuit ends the goroutine of a branch if the goroutines of all branches must end.
func (f *Flow) leaveIfQuit() {
	switch _, text, hasQuit := f.call.branches.Load().failure(); {
	case !hasQuit:
	case text == "":
		f.call.exit()
	default:
		f.leave(broken)
	}
}

// leave ends the goroutine of a branch.
func (f *Flow) leave(how branchEnd) {
	f.branch.end = how
	f.over.Store(true)
	runtime.Goexit()
}

// cutOff ends the branch, or the function, at operations that must not begin any more.
func (f *Flow) cutOff() {
	if f.branch == nil {
		f.call.toUndo.Store(true) // undoMain undoes the operations then
		runtime.Goexit()
	}
	f.leave(cut)
}

// mayBegin reports whether the flow may begin an operation that is neither stored nor pending. It ends
// the goroutine if the run does not fit the function: see hold.
func (f *Flow) mayBegin(identity string) bool {
	f.runLast(identity)
	return f.canBegin()
}

// runLast waits until no other branch can continue. identity is that of the new operation that the
// flow is about to begin; "" for none.
func (f *Flow) runLast(identity string) {
	f.held = identity
	if f.branch != nil {
		f.call.branches.Load().runLast(f)
		f.leaveIfQuit()
		f.call.exitIfStopped()
	} else {
		hold([]*Flow{f})
	}
	f.held = ""
	if f.call.firstWrong() != nil {
		f.call.exit()
	}
}
