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

// The causes of the context of an attempt that is ended from outside.
var (
	// ErrShutdown says that the engine is being closed. The attempt will be made
	// again, and does not count.
	ErrShutdown = errors.New("the engine is being closed")

	// errHandover is the ErrShutdown of a shard that goes to another process.
	errHandover error = handover{}

	// ErrTimeout says that the attempt, its step or its run has no time left.
	ErrTimeout = errors.New("attempt timed out")

	// ErrSilent says that there was no heartbeat for too long.
	ErrSilent = errors.New("no heartbeat")

	// ErrPaused says that the run was paused. The attempt will be made again when the
	// run goes on, and does not count.
	ErrPaused = errors.New("the run is paused")

	errRunOver = fmt.Errorf("the run is over: %w", context.Canceled)
)

// progressEvery is how often progress is stored, at most.
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
	def      *machine.Definition
	outputs  [][]byte
	timeout  time.Duration // until the deadline; 0 means none
	silence  time.Duration // longest time without a heartbeat; 0 means any
	ctx      context.Context
	cancel   context.CancelCauseFunc
	ended    atomic.Bool // its outcome is known; nothing changes it
	reported atomic.Bool // its outcome is on the way to the owner
	alive    *time.Timer // fires when there was no heartbeat
	beat     atomic.Int64
	lent     bool        // others have its place, because it can't begin
	left     atomic.Bool // its place was given back
	trial    *trial      // of a suspect; nil for others
}

// end cancels the context of the attempt.
func (a *attempt) end(cause error) {
	a.cancel(cause)
	a.grace(cause)
}

// leave gives back the place of the attempt.
func (a *attempt) leave() {
	if a.left.CompareAndSwap(false, true) {
		a.sh.places.give()
		a.sh.quarantine.exit()
		a.trial.end()
	}
}

// run makes the attempt and reports its outcome to the owner.
func (a *attempt) run() {
	defer a.sh.attempts.Done()
	defer a.cancel(context.Canceled)
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
	result := &machine.Result{Failed: true, Error: "the handler ended its goroutine (runtime.Goexit)"}
	defer func() { // also when the handler ends the goroutine
		if !a.ended.CompareAndSwap(false, true) {
			a.sh.dispatcher.handlerReturned(stuckHandler{a.key, a.number})
			return
		}
		a.report(result)
	}()
	out, err := a.call(ctx)
	result = a.result(ctx, out, err)
}

// call calls the handler. A panic is a failure like others, but for the stack
// in its text.
func (a *attempt) call(ctx context.Context) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("panic: %v\n%s", p, stack())
		}
	}()
	if a.task.Input, err = a.sh.completeInput(ctx, a.task.Input); err != nil {
		return nil, err
	}
	return a.handler(ctx, &a.task)
}

// stack returns the stack of a panic without what leads from it to here.
func stack() string {
	s := string(debug.Stack())
	if _, rest, ok := strings.Cut(s, "\npanic("); ok {
		if lines := strings.SplitN(rest, "\n", 3); len(lines) == 3 {
			s = lines[2]
		}
	}
	return s
}

// handover is a shutdown that concerns some runs only.
type handover struct{}

func (handover) Error() string        { return "the run goes on in another process" }
func (handover) Is(target error) bool { return target == ErrShutdown }

// grace gives an attempt whose context has ended some time to return.
func (a *attempt) grace(cause error) {
	if errors.Is(cause, ErrShutdown) {
		return // the caller of Close decides how long
	}
	time.AfterFunc(a.sh.cfg.Grace, func() {
		if !a.ended.CompareAndSwap(false, true) {
			return
		}
		a.sh.dispatcher.handlerStuck()
		a.report(&machine.Result{
			Failed: true, Outcome: retry.Outcome{Class: retry.ClassStuck},
			Error: fmt.Sprintf("still running %v after its context ended: %v", a.sh.cfg.Grace, cause),
		})
	})
}

// result says how the handler's return looks to the machine. An error of the handler may
// panic when it is looked at.
func (a *attempt) result(ctx context.Context, out []byte, err error) (r *machine.Result) {
	defer func() {
		if p := recover(); p != nil {
			r = &machine.Result{Failed: true, Error: fmt.Sprintf("an error of the step can't be read: panic: %v", p)}
		}
	}()
	if err == nil {
		switch {
		case len(out) > a.sh.cfg.MaxPayload:
			err = retry.Permanent(fmt.Errorf("output of the step: %d bytes, at most %d are kept; store it elsewhere and return where", len(out), a.sh.cfg.MaxPayload))
		case out != nil && !a.task.encoded && !json.Valid(out):
			err = retry.Permanent(errors.New("output of the step: not JSON"))
		default:
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
		// The run was not canceled, or this would not be asked: something that the
		// handler called was canceled, and that may pass.
		outcome.Class = retry.ClassTransient
	}
	return &machine.Result{Failed: true, Outcome: outcome, Error: a.sh.errorText(err.Error()), Memo: memo}
}

// errorText returns the text of an error as it is stored: without secrets, of
// bounded length, valid UTF-8.
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
	a.reported.Store(true)
	select {
	case a.sh.others <- &request{result: r}:
	case <-a.sh.done:
	}
	if a.sh.dead.Load() {
		a.leave() // the owner may not have received it
	}
}

// output returns what an earlier step returned.
func (a *attempt) output(step string) (json.RawMessage, error) {
	i := a.def.Index(step)
	switch {
	case i < 0:
		return nil, fmt.Errorf("result of %q: workflow %q has no such step", step, a.def.Name)
	case !a.def.Upstream(a.key.step, i):
		return nil, fmt.Errorf("result of %q: step %q does not come after it", step, a.task.Step)
	}
	return a.outputs[i], nil
}

// before returns the steps that this one comes after.
func (a *attempt) before() (names []string) {
	for i := range a.def.Steps {
		if a.def.Upstream(a.key.step, i) {
			names = append(names, a.def.Steps[i].Name)
		}
	}
	return names
}

// heartbeat says that the attempt is alive.
func (a *attempt) heartbeat(progress any) error {
	if a.alive != nil {
		a.alive.Reset(a.silence)
	}
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

// saveProgress stores the progress, and waits until it is stored.
func (a *attempt) saveProgress(ctx context.Context, progress any) error {
	if a.alive != nil {
		a.alive.Reset(a.silence)
	}
	text, err := a.sh.encodeNote(progress)
	if err == nil {
		err = a.sh.do(ctx, func(*turn) error { return a.sh.dispatcher.progress(a.key, a.number, text) })
	}
	if err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	return nil
}

// encodeNote returns the progress or the memo of an attempt as it is stored.
func (p *process) encodeNote(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(text) > maxError {
		return nil, fmt.Errorf("%d bytes, at most %d", len(text), maxError)
	}
	if text = []byte(p.cfg.Redact(string(text))); !json.Valid(text) {
		text, _ = json.Marshal(string(text)) // a string can be
	}
	return text, nil
}

// memo returns what the attempt keeps for the next.
func (a *attempt) memo(err error) []byte {
	k, ok := errors.AsType[*kept](err)
	if !ok {
		return nil
	}
	text, err := a.sh.encodeNote(k.memo)
	if err != nil {
		a.sh.cfg.Logger.Error("what an attempt keeps for the next can't be stored", "run", a.task.Run, "step", a.task.Step, "error", err)
		return nil
	}
	return text
}
