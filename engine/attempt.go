package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// The engine cancels the context of an attempt with one of these causes: see context.Cause.
var (
	// ErrShutdown says that the engine is being closed. The attempt will be made
	// again, and does not count for the policy.
	ErrShutdown = errors.New("the engine is being closed")

	// errHandover matches ErrShutdown. It says that another process takes over the shard.
	errHandover error = handover{}

	// ErrTimeout says that the timeout of the attempt or the total timeout of its step
	// is over.
	ErrTimeout = errors.New("attempt timed out")

	// ErrSilent says that the attempt sent no [Heartbeat] within its HeartbeatTimeout.
	ErrSilent = errors.New("no heartbeat")

	// ErrPaused says that the run was paused or postponed. The attempt will be made
	// again when the run continues, and does not count for the policy.
	ErrPaused = errors.New("the run is paused")

	errRunOver = fmt.Errorf("the run is over: %w", context.Canceled)
)

// progressEvery is the shortest time between two values of [Progress] that are stored.
const progressEvery = time.Second

type attemptKey struct {
	run  machine.ID
	step int
}

// attempt is one call of a handler.
type attempt struct {
	sh       *shard
	key      attemptKey
	number   int
	handler  Handler
	task     Task
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
	lent     bool          // its place was lent to other attempts, because it can't begin
	left     atomic.Bool   // its place was given back
	entered  atomic.Bool   // its handler counts as running: see places.enter
	storing  time.Duration // how long it took to store that the attempt begins
	quick    bool          // the handler took less time than that; set before reported
	trial    *trial        // nil if the step is not a suspect: see quarantine
	flow     *flowCall     // the call of the function that waits for the operation; nil for a step
	item     groupItem     // the operation of a flow; zero for a step
	request  request       // reports the outcome
}

// inline reports whether the goroutine of the function makes the attempt.
func (a *attempt) inline() bool { return a.item.opGroup != nil && a.item.inline }

// end cancels the context of the attempt, and gives the handler the grace time to return.
func (a *attempt) end(cause error) {
	a.cancel(cause)
	a.grace(cause)
}

// releasePlace frees the place of the attempt (see places) and ends its trial (see
// quarantine). Only the first call has an effect.
func (a *attempt) releasePlace() {
	if a.left.CompareAndSwap(false, true) {
		a.sh.places.giveAfter(a.quick)
		a.sh.quarantine.exit()
		a.trial.end()
	}
}

// run makes the attempt and reports its outcome to the owner.
func (a *attempt) run() {
	defer a.sh.attempts.Done()
	defer a.cancel(context.Canceled)
	begin := time.Now()
	var result *machine.Result
	defer func() { // also when the handler ends the goroutine
		if result == nil {
			result = &machine.Result{Failed: true, Error: "the handler ended its goroutine (runtime.Goexit)"}
			if a.inline() {
				a.flow.exiting.Store(true) // before the owner knows: the goroutine makes no other attempt
			}
		}
		if !a.ended.CompareAndSwap(false, true) {
			if a.flow != nil && result.Succeeded() {
				a.flow.size.Add(-int64(len(result.Output))) // nothing stores it
			}
			a.leaveHandlers()
			a.sh.dispatcher.handlerReturned(stuckHandler{a.key, a.number})
			return
		}
		a.quick = time.Since(begin) < a.storing
		a.report(result)
	}()
	if err := a.sh.places.enter(a.ctx); err != nil {
		if result = a.result(a.ctx, nil, err); errors.Is(err, errNoPlace) {
			result = &machine.Result{Release: true, Error: err.Error()}
		}
		return
	}
	a.entered.Store(true)
	if !a.inline() { // the function has decoded its input: the stack is large
		growStack()
	}
	a.task.attempt = a
	ctx := context.WithValue(a.ctx, taskKey{}, &a.task)
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

// leaveHandlers lets another handler run, if that of the attempt was called. Further calls do
// nothing.
func (a *attempt) leaveHandlers() {
	if a.entered.CompareAndSwap(true, false) {
		a.sh.places.leave()
	}
}

// call calls the handler. It returns a panic of the handler as an error with the stack.
func (a *attempt) call(ctx context.Context) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("panic: %v\n%s", p, stack())
		}
	}()
	if a.task.Input, err = a.sh.completeInput(ctx, a.task.Input); err != nil {
		return nil, err
	}
	return a.handler(a.sh.extract(ctx, a.trace), &a.task)
}

// stack returns the stack of a panic, without the frames of recovering from it.
func stack() string {
	s := string(debug.Stack())
	if _, rest, ok := strings.Cut(s, "\npanic("); ok {
		if lines := strings.SplitN(rest, "\n", 3); len(lines) == 3 {
			s = lines[2]
		}
	}
	return s
}

// handover is the type of errHandover. It matches ErrShutdown, because the attempt is released
// in the same way. But the engine keeps running: only one shard moves to another process.
type handover struct{}

func (handover) Error() string        { return "the run goes on in another process" }
func (handover) Is(target error) bool { return target == ErrShutdown }

// grace gives the handler of an attempt whose context has ended some time to return. If
// the handler does not return in time, the attempt fails as stuck.
func (a *attempt) grace(cause error) {
	if errors.Is(cause, ErrShutdown) {
		return // the context of Close limits the time
	}
	time.AfterFunc(a.sh.cfg.Grace, func() {
		if !a.ended.CompareAndSwap(false, true) {
			return
		}
		a.sh.dispatcher.stuckNow.Add(1)
		a.report(&machine.Result{
			Failed: true, Outcome: retry.Outcome{Class: retry.ClassStuck},
			Error: fmt.Sprintf("still running %v after its context ended: %v", a.sh.cfg.Grace, cause),
		})
	})
}

// result converts the output and the error of the handler to a result for the state machine.
// If a method of the error panics, the attempt fails.
func (a *attempt) result(ctx context.Context, out []byte, err error) (r *machine.Result) {
	defer func() {
		if p := recover(); p != nil {
			r = &machine.Result{Failed: true, Error: fmt.Sprintf("an error of the step can't be read: panic: %v", p)}
		}
	}()
	if err == nil {
		switch {
		case len(out) > a.sh.cfg.MaxPayload:
			what := "output of the step"
			if a.flow != nil {
				what = "result of the operation"
			}
			err = retry.Permanent(fmt.Errorf("%s: %d bytes, at most %d can be stored; store it elsewhere and return a reference", what, len(out), a.sh.cfg.MaxPayload))
		case out != nil && !a.task.encoded && !json.Valid(out):
			err = retry.Permanent(errors.New("output of the step: not JSON"))
		case a.flow != nil && !a.item.isUndo: // an undo must be possible
			err = a.flow.reserve(out)
		}
		if err == nil {
			return &machine.Result{Output: out}
		}
	}
	memo := a.memo(err)
	if s, ok := errors.AsType[*snooze](err); ok {
		return &machine.Result{Snooze: s.wait, Until: s.until, Limited: s.limited, Now: s.now, Error: a.sh.errorText(s.note), Memo: memo}
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrShutdown) || errors.Is(cause, ErrPaused) {
		return &machine.Result{Release: true, Error: a.sh.errorText(err.Error()), Memo: memo}
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
	return &machine.Result{Failed: true, Outcome: outcome, Error: a.sh.errorText(err.Error()), Memo: memo, Code: codeOf(err)}
}

// errorText returns the text of an error as it is stored: redacted, shortened to a limit,
// and as valid UTF-8.
func (p *process) errorText(s string) string {
	s = p.cfg.Redact(s)
	if len(s) > maxError {
		kept := textfmt.Truncate(s, maxError)
		s = fmt.Sprintf("%s… (%d bytes more)", kept, len(s)-len(kept))
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// report sends the outcome of the attempt to the owner.
func (a *attempt) report(r *machine.Result) {
	r.Run, r.Step, r.Attempt = a.key.run, a.key.step, a.number
	a.leaveHandlers()
	a.reported.Store(true)
	a.request.result = r
	a.sh.post(&a.request)
	if a.flow != nil && r.Succeeded() {
		a.item.deliver(a.key, r.Output)
	}
	if a.sh.dead.Load() {
		a.releasePlace() // the owner has stopped, and may not have read the result
	}
}

// output returns the output of a step that the attempt's step depends on, directly or not.
func (a *attempt) output(step string) (json.RawMessage, error) {
	i := a.def.Index(step)
	switch {
	case a.flow != nil:
		return nil, fmt.Errorf("result of %q: %s is an operation: its function passes the results of other operations to it", step, a.task.Step)
	case i < 0:
		return nil, fmt.Errorf("result of %q: workflow %q has no such step", step, a.def.Name)
	case !a.def.Upstream(a.key.step, i):
		return nil, fmt.Errorf("result of %q: step %q does not depend on that step; add it to After", step, a.task.Step)
	}
	return a.outputs[i], nil
}

// before returns the names of the steps that the attempt's step depends on, directly or not.
func (a *attempt) before() (names []string) {
	for i := range a.def.Steps {
		if a.flow == nil && a.def.Upstream(a.key.step, i) {
			names = append(names, a.def.Steps[i].Name)
		}
	}
	return names
}

// sendProgress sends the progress to the owner, unless it is nil or the last one was sent less
// than progressEvery ago.
func (a *attempt) sendProgress(progress any) error {
	if progress == nil {
		return nil
	}
	now := time.Now().UnixNano()
	last := a.beat.Load()
	if now-last < int64(progressEvery) || !a.beat.CompareAndSwap(last, now) {
		return nil
	}
	text, err := a.sh.encodeNote(progress)
	if err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	select {
	case a.sh.others <- &request{do: func(*turn) error { return a.sh.dispatcher.progress(a.key, a.number, text) }}:
	case <-a.sh.done:
	case <-a.ctx.Done():
	}
	return nil
}

// saveProgress sends the progress to the owner, and returns when it is stored.
func (a *attempt) saveProgress(ctx context.Context, progress any) error {
	text, err := a.sh.encodeNote(progress)
	if err == nil {
		err = a.sh.do(ctx, func(*turn) error { return a.sh.dispatcher.progress(a.key, a.number, text) })
	}
	if err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	return nil
}

// encodeNote returns the progress or the memo of an attempt as it is stored: redacted JSON.
func (p *process) encodeNote(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(text) > maxError {
		return nil, fmt.Errorf("%d bytes, at most %d", len(text), maxError)
	}
	if text = []byte(p.cfg.Redact(string(text))); !json.Valid(text) {
		text, _ = json.Marshal(string(text)) // Redact broke the JSON: store it as a string
	}
	return text, nil
}

// memo returns the encoded memo that the handler added to its error by [Keep]; nil if there
// is none or it can't be stored.
func (a *attempt) memo(err error) []byte {
	k, ok := errors.AsType[*kept](err)
	if !ok {
		return nil
	}
	text, err := a.sh.encodeNote(k.memo)
	if err != nil {
		a.sh.cfg.Logger.Error("the memo of an attempt can't be stored; the next attempt does not get it", "run", a.task.Run, "step", a.task.Step, "error", err)
		return nil
	}
	return text
}
