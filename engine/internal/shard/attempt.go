package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// progressEvery is the shortest time between two values of engine.Progress that are stored.
const progressEvery = time.Second

// attemptHost is what the attempts of a shard have in common.
type attemptHost struct {
	process  *Process
	requests *requests
	running  *sync.WaitGroup
	stuck    *stuckHandlers
	dead     atomic.Bool // the owner has stopped: results of attempts are not stored any more
}

// Attempt is one call of a handler.
type Attempt struct {
	host   *attemptHost
	key    attemptKey
	number int
	stepCode
	Task     info.Task
	trace    string // stored trace context; "" for none
	def      *machine.Definition
	outputs  [][]byte
	timeout  time.Duration // time until the deadline; 0 means no deadline
	silence  time.Duration // longest time without a heartbeat; 0 means no limit
	ctx      context.Context
	cancel   context.CancelCauseFunc
	ended    atomic.Bool // the outcome is decided: a later return of the handler does not change it
	reported atomic.Bool // the outcome was sent to the owner, or is about to be
	alive    *time.Timer // ends the attempt if there was no heartbeat; nil without a limit
	beat     atomic.Int64
	ticket   admission.Ticket
	storing  time.Duration // how long it took to store that the attempt begins
	quick    bool          // the handler took less time than that; set before reported
	request  request       // reports the outcome
}

type attemptContext struct{} // the key of the attempt in the context of a handler

// AttemptOf returns the attempt of a handler's context; nil if it is another context.
func AttemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptContext{}).(*Attempt)
	return a
}

// IsOf reports whether the attempt is one of this process.
func (a *Attempt) IsOf(p *Process) bool { return a.host.process == p }

// KeepAlive restarts the heartbeat timeout.
func (a *Attempt) KeepAlive() {
	if a.alive != nil {
		a.alive.Reset(a.silence)
	}
}

// end cancels the context of the attempt, and gives the handler the grace time to return.
func (a *Attempt) end(cause error) {
	a.cancel(cause)
	a.grace(cause)
}

// Make makes the attempt and reports its outcome to the owner.
func (a *Attempt) Make() {
	defer a.host.running.Done()
	defer a.cancel(context.Canceled)
	begin := time.Now()
	var result *machine.Result
	defer func() { // also when the handler ends the goroutine
		if result == nil {
			result = &machine.Result{Failed: true, Error: "the handler ended its goroutine (runtime.Goexit)"}
			if !a.op.IsZero() {
				a.op.EndGoroutine() // before the owner knows
			}
		}
		if !a.ended.CompareAndSwap(false, true) {
			if !a.op.IsZero() && result.Succeeded() {
				a.op.Release(result.Output)
			}
			a.ticket.Leave()
			a.host.stuck.returned(stuckHandler{a.key, a.number})
			return
		}
		a.quick = time.Since(begin) < a.storing
		a.report(result)
	}()
	if err := a.ticket.Enter(a.ctx); err != nil {
		if result = a.result(a.ctx, nil, err); errors.Is(err, admission.ErrNoPlace) {
			result = &machine.Result{Release: true, Error: err.Error()}
		}
		return
	}
	if !a.op.IsInline() { // the function has decoded its input: the stack is large
		goroutine.GrowStack()
	}
	a.Task.Steps = a
	ctx := context.WithValue(a.ctx, attemptContext{}, a)
	if a.timeout > 0 {
		why := fmt.Errorf("%w after %v", ErrTimeout, a.timeout.Round(time.Millisecond))
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, a.timeout, why)
		defer stop()
		defer context.AfterFunc(ctx, func() { a.grace(context.Cause(ctx)) })()
	}
	if a.silence > 0 {
		a.alive = time.AfterFunc(a.silence, func() { a.end(fmt.Errorf("%w for %v", ErrSilent, a.silence)) })
		defer a.alive.Stop()
	}
	out, err := a.call(ctx)
	result = a.result(ctx, out, err)
}

// call calls the handler. It returns a panic of the handler as an error with the stack.
func (a *Attempt) call(ctx context.Context) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("panic: %v\n%s", p, goroutine.PanicStack())
		}
	}()
	if a.Task.Input, err = completeInput(ctx, a.host.process.Peers, a.Task.Input); err != nil {
		return nil, err
	}
	if extract := a.host.process.Settings.Extract; extract != nil {
		ctx = extract(ctx, a.trace)
	}
	if a.handler.Do == nil {
		return a.op.Do(ctx)
	}
	return a.handler.Do(ctx, &a.Task)
}

// grace gives the handler of an attempt whose context has ended some time to return. If
// the handler does not return in time, the attempt fails as stuck.
func (a *Attempt) grace(cause error) {
	if errors.Is(cause, ErrShutdown) {
		return // the context of Close limits the time
	}
	time.AfterFunc(a.host.process.Settings.Grace, func() {
		if !a.ended.CompareAndSwap(false, true) {
			return
		}
		a.host.stuck.now.Add(1)
		a.report(&machine.Result{
			Failed: true, Outcome: retry.Outcome{Class: retry.ClassStuck},
			Error: fmt.Sprintf("still running %v after its context ended: %v", a.host.process.Settings.Grace, cause),
		})
	})
}

// result converts the output and the error of the handler to a result for the state machine.
// If a method of the error panics, the attempt fails.
func (a *Attempt) result(ctx context.Context, out []byte, err error) (r *machine.Result) {
	defer func() {
		if p := recover(); p != nil {
			r = &machine.Result{Failed: true, Error: fmt.Sprintf("an error of the step can't be read: panic: %v", p)}
		}
	}()
	if err == nil {
		if err = a.checkOutput(out); err == nil {
			return &machine.Result{Output: out}
		}
	}
	memo := a.memo(err)
	if s, ok := errors.AsType[*workflow.Snooze](err); ok {
		return &machine.Result{Snooze: s.Wait, Until: s.Until, Limited: s.Limited, Now: s.Now, Error: a.host.process.Settings.errorText(s.Note), Memo: memo}
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrShutdown) || errors.Is(cause, ErrPaused) {
		return &machine.Result{Release: true, Error: a.host.process.Settings.errorText(err.Error()), Memo: memo}
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	outcome := retry.OutcomeOf(err)
	if outcome.Class == retry.ClassCanceled {
		// If the run was canceled, the machine does not use the class. Otherwise a
		// function that the handler called was canceled, which a retry may cure.
		outcome.Class = retry.ClassTransient
	}
	return &machine.Result{Failed: true, Outcome: outcome, Error: a.host.process.Settings.errorText(err.Error()), Memo: memo, Code: workflow.CodeOf(err)}
}

// checkOutput returns why an output can't be stored.
func (a *Attempt) checkOutput(out []byte) error {
	most := a.host.process.Settings.MaxPayload
	switch {
	case len(out) > most:
		what := "output of the step"
		if !a.op.IsZero() {
			what = "result of the operation"
		}
		return retry.Permanent(fmt.Errorf("%s: %d bytes, at most %d can be stored; store it elsewhere and return a reference", what, len(out), most))
	case !a.op.IsZero():
		return a.op.Reserve(out)
	case out != nil && !a.handler.IsJSON && !json.Valid(out):
		return retry.Permanent(errors.New("output of the step: not JSON"))
	}
	return nil
}

// report sends the outcome of the attempt to the owner.
func (a *Attempt) report(r *machine.Result) {
	r.Run, r.Step, r.Attempt = a.key.run, a.key.step, a.number
	a.ticket.Leave()
	a.reported.Store(true)
	a.request.result = r
	a.host.requests.put(incoming{request: &a.request}, nil)
	if !a.op.IsZero() && r.Succeeded() {
		a.op.Deliver(a.key.step, r.Output)
	}
	if a.host.dead.Load() {
		a.ticket.Give(a.quick) // the owner has stopped, and may not have read the result
	}
}

// Output returns the output of a step that the attempt's step depends on, directly or not.
func (a *Attempt) Output(step string) (json.RawMessage, error) {
	i := a.def.Index(step)
	switch {
	case !a.op.IsZero():
		return nil, fmt.Errorf("result of %q: %s is an operation: its function passes the results of other operations to it", step, a.Task.Step)
	case i < 0:
		return nil, fmt.Errorf("result of %q: workflow %q has no such step", step, a.def.Name)
	case !a.def.Upstream(a.key.step, i):
		return nil, fmt.Errorf("result of %q: step %q does not depend on that step; add it to After", step, a.Task.Step)
	}
	return a.outputs[i], nil
}

// Before returns the names of the steps that the attempt's step depends on, directly or not.
func (a *Attempt) Before() (names []string) {
	for i := range a.def.Steps {
		if a.op.IsZero() && a.def.Upstream(a.key.step, i) {
			names = append(names, a.def.Steps[i].Name)
		}
	}
	return names
}

// SendProgress sends the progress to the owner, unless it is nil or the last one was sent less
// than progressEvery ago.
func (a *Attempt) SendProgress(progress any) error {
	if progress == nil {
		return nil
	}
	now := time.Now().UnixNano()
	last := a.beat.Load()
	if now-last < int64(progressEvery) || !a.beat.CompareAndSwap(last, now) {
		return nil
	}
	text, err := a.host.process.Settings.encodeNote(progress)
	if err != nil {
		return err
	}
	a.host.requests.post(func(t Recorder) { a.recordProgress(t, text) }, a.ctx.Done())
	return nil
}

// SaveProgress sends the progress to the owner, and returns when it is stored.
func (a *Attempt) SaveProgress(ctx context.Context, progress any) error {
	text, err := a.host.process.Settings.encodeNote(progress)
	if err == nil {
		err = a.host.requests.Do(ctx, func(t Recorder) error { a.recordProgress(t, text); return nil })
	}
	return err
}

// recordProgress records the progress of the attempt, if it is running.
func (a *Attempt) recordProgress(t Recorder, progress json.RawMessage) {
	if rec, ok := t.State().Report(a.key.run, a.key.step, a.number, progress, t.Now()); ok {
		t.Record(rec)
	}
}

// memo returns the encoded memo that the handler added to its error by engine.Keep; nil if there
// is none or it can't be stored.
func (a *Attempt) memo(err error) []byte {
	k, ok := errors.AsType[*workflow.Kept](err)
	if !ok {
		return nil
	}
	text, err := a.host.process.Settings.encodeNote(k.Memo)
	if err != nil {
		a.host.process.Settings.Logger.Error("the memo of an attempt can't be stored; the next attempt does not get it", "run", a.Task.Run, "step", a.Task.Step, "error", err)
		return nil
	}
	return text
}

// stepCode is what an attempt of a step executes: a handler, or an operation of a flow.
type stepCode struct {
	handler workflow.Handler
	op      flow.Operation
}

// dueCode is what begins when a step is due: an attempt of the step, or a call of the function of a flow.
type dueCode struct {
	stepCode
	function *workflow.Workflow
}

type attemptKey struct {
	run  machine.ID
	step int
}

// stuckHandlers are the handlers and functions that have not returned after their attempts were given up.
type stuckHandlers struct {
	requests *requests
	known    map[stuckHandler]bool // true if the handler returned before the owner knew that it was stuck
	now      atomic.Int64          // number of stuck handlers that have not returned
}

// stuckHandler identifies an attempt that failed as stuck while its handler was running.
type stuckHandler struct {
	attemptKey
	number int
}

// note notes that a handler is stuck, or that a stuck handler has returned. It is called
// once for each, in any order; the second call removes the handler.
func (s *stuckHandlers) note(h stuckHandler, returned bool) {
	if _, known := s.known[h]; known {
		delete(s.known, h)
	} else {
		s.known[h] = returned
	}
}

// returned notes that a stuck handler has returned. The goroutine of the handler calls
// it.
func (s *stuckHandlers) returned(h stuckHandler) {
	s.now.Add(-1)
	s.requests.post(func(Recorder) { s.note(h, true) }, nil)
}

// check returns an error if a stuck handler of the run has not returned: the run must not
// continue beside it.
func (s *stuckHandlers) check(id machine.ID) error {
	for h, returned := range s.known {
		if h.run == id && !returned {
			return fmt.Errorf("%w: an attempt of run %s was given up, but its handler has not returned; wait until it does, or restart the process in which it runs", machine.ErrState, id)
		}
	}
	return nil
}
