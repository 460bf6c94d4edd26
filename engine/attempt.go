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

// What ends an attempt from outside. They are the causes of its context.
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

	// ErrPaused says that somebody has paused the run. The attempt will be made
	// again when it goes on, and does not count.
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
	sh      *shard
	key     attemptKey
	number  int
	handler Handler
	task    Task
	def     *machine.Definition
	outputs [][]byte
	timeout time.Duration // until the deadline; 0 means none
	silence time.Duration // longest time without a heartbeat; 0 means any
	ctx     context.Context
	cancel  context.CancelCauseFunc
	ended   atomic.Bool // the owner has been told how it ended
	alive   *time.Timer // fires when there was no heartbeat
	beat    atomic.Int64
	lent    bool        // others have its place, because it can't begin
	told    atomic.Bool // that it has ended
	left    atomic.Bool // its place was given back
	trial   *trial      // of a suspect; nil for others
}

// end tells the attempt to end.
func (a *attempt) end(cause error) {
	a.cancel(cause)
	a.grace(cause)
}

// leave gives back the place of the attempt.
func (a *attempt) leave() {
	if a.left.CompareAndSwap(false, true) {
		a.sh.process.places.give()
		a.sh.process.quarantine.exit()
		a.trial.end()
	}
}

// run makes the attempt and tells the owner how it ended.
func (a *attempt) run() {
	defer a.sh.attempts.Done()
	defer a.cancel(context.Canceled)
	a.task.attempt, a.task.outputs, a.task.before, a.task.beat = a, a.output, a.before, a.heartbeat
	a.task.save = a.saveProgress
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
			a.sh.unstuck(zombie{a.key, a.number})
			return
		}
		a.tell(result)
	}()
	out, err := a.call(ctx)
	result = a.judged(ctx, out, err)
}

// judged is result for errors that may panic when they are looked at.
func (a *attempt) judged(ctx context.Context, out []byte, err error) (r *machine.Result) {
	defer func() {
		if p := recover(); p != nil {
			r = &machine.Result{Failed: true, Error: fmt.Sprintf("an error of the step can't be read: panic: %v", p)}
		}
	}()
	return a.result(ctx, out, err)
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
func stack() []byte {
	s := string(debug.Stack())
	if _, rest, ok := strings.Cut(s, "\npanic("); ok {
		if i := strings.Index(rest, "\n"); i >= 0 {
			if j := strings.Index(rest[i+1:], "\n"); j >= 0 {
				s = rest[i+1+j+1:]
			}
		}
	}
	return []byte(s)
}

// handover is a shutdown that concerns some runs only.
type handover struct{}

func (handover) Error() string        { return "the run goes on in another process" }
func (handover) Is(target error) bool { return target == ErrShutdown }

// grace gives an attempt that was told to end some time for it.
func (a *attempt) grace(cause error) {
	if errors.Is(cause, ErrShutdown) {
		return // whoever closes the engine says for how long
	}
	time.AfterFunc(a.sh.cfg.Grace, func() {
		if !a.ended.CompareAndSwap(false, true) {
			return
		}
		a.sh.stuck.Add(1)
		a.tell(&machine.Result{
			Failed: true, Outcome: retry.Outcome{Class: retry.ClassStuck},
			Error: fmt.Sprintf("still running %v after it was told to end: %v", a.sh.cfg.Grace, cause),
		})
	})
}

// result says how the handler's return looks to the machine.
func (a *attempt) result(ctx context.Context, out []byte, err error) *machine.Result {
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
		return &machine.Result{Snooze: s.wait, Until: s.until, Limited: s.limited, Now: s.now, Error: a.sh.text(s.note), Memo: memo}
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrShutdown) || errors.Is(cause, ErrPaused) {
		return &machine.Result{Release: true, Error: a.sh.text(err.Error()), Memo: memo}
	}
	if cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	outcome := retry.OutcomeOf(err)
	if outcome.Class == retry.ClassCanceled {
		// Nobody canceled the run, or this would not be asked: it is something the
		// handler called that was canceled, and that may pass.
		outcome.Class = retry.ClassTransient
	}
	return &machine.Result{Failed: true, Outcome: outcome, Error: a.sh.text(err.Error()), Memo: memo}
}

// text returns the text of an error as it is stored: without secrets, of
// bounded length, valid UTF-8.
func (sh *shard) text(s string) string {
	s = sh.cfg.Redact(s)
	if len(s) > maxError {
		kept := textfmt.Truncate(s, maxError)
		s = fmt.Sprintf("%s… (%d bytes more)", kept, len(s)-len(kept))
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// tell tells the owner how the attempt ended.
func (a *attempt) tell(r *machine.Result) {
	r.Run, r.Step, r.Attempt = a.key.run, a.key.step, a.number
	a.told.Store(true)
	select {
	case a.sh.others <- &request{result: r}:
	case <-a.sh.done:
	}
	if a.sh.dead.Load() {
		a.leave() // nobody may have heard it
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
	text, err := a.sh.note(progress)
	if err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	select {
	case a.sh.others <- &request{do: func(t *turn) error { return t.progress(a.key, a.number, text) }}:
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
	text, err := a.sh.note(progress)
	if err == nil {
		err = a.sh.do(ctx, func(t *turn) error { return t.progress(a.key, a.number, text) })
	}
	if err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	return nil
}

// note returns what an attempt says of itself as it is stored.
func (sh *shard) note(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(text) > maxError {
		return nil, fmt.Errorf("%d bytes, at most %d", len(text), maxError)
	}
	if text = []byte(sh.cfg.Redact(string(text))); !json.Valid(text) {
		text, _ = json.Marshal(string(text)) // a string can be
	}
	return text, nil
}

// memo returns what the attempt leaves for the next.
func (a *attempt) memo(err error) []byte {
	k, ok := errors.AsType[*kept](err)
	if !ok {
		return nil
	}
	text, err := a.sh.note(k.memo)
	if err != nil {
		a.sh.cfg.Logger.Error("what an attempt keeps for the next can't be stored", "run", a.task.Run, "step", a.task.Step, "error", err)
		return nil
	}
	return text
}
