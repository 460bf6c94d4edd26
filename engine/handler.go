package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/retry"
)

// Handler does the work of a step. The output is JSON; nil stands for null.
type Handler func(ctx context.Context, t *Task) (output []byte, err error)

// Task is what a handler is called for.
//
// Origin and Step together are the same in all attempts of a step, also after
// Retry, [Engine.RetryLatest], [Engine.Replay] and [Engine.Rerun]: use them as
// idempotency key for what must not be done twice. Run and Key are not: a
// repetition is a run of its own, and has no key.
type Task struct {
	Run       string // id of the run
	Workflow  string // its workflow
	Key       string // the key it was started with
	Origin    string // id of the first run of the chain of replays and reruns; that of Run if it repeats no other
	OriginKey string // the key that run was started with

	Step     string          // name of the step
	Attempt  int             // of the Attempts, from 1: Spent + 1. One that was lost, released or snoozed is made again under its number
	Attempts int             // the policy's limit; retry.Unlimited for none
	Total    int             // number of the attempt among all that were ever made of the step, from 1, as in AttemptInfo
	Created  time.Time       // when the run was accepted
	Source   string          // who started it
	Args     json.RawMessage // of a step that is data
	Input    json.RawMessage // of the run
	Progress json.RawMessage // what an attempt of the step said last by Progress, SaveProgress or Keep
	Spent    int             // attempts that count for the policy
	Windows  int             // times an attempt returned Limited

	attempt *attempt
	encoded bool // the output is JSON, because we made it
}

// Output returns what an earlier step returned. The step must be one that this
// one comes after, by however many others.
func (t *Task) Output(step string) (json.RawMessage, error) { return t.attempt.output(step) }

// Before returns the steps that this one comes after, by however many others, in
// the order of the workflow.
func (t *Task) Before() []string { return t.attempt.before() }

// adapt makes a handler of a function of types.
func adapt[In, Out any](do func(context.Context, In) (Out, error)) Handler {
	return func(ctx context.Context, t *Task) ([]byte, error) {
		var in In
		if len(t.Input) > 0 {
			if err := json.Unmarshal(t.Input, &in); err != nil {
				return nil, retry.Permanent(fmt.Errorf("input of the run: %w", err))
			}
		}
		out, err := do(ctx, in)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(out)
		if err != nil {
			return nil, retry.Permanent(fmt.Errorf("output of the step: %w", err))
		}
		t.encoded = true
		return text, nil
	}
}

type taskKey struct{}

// TaskOf returns the task that a handler's context belongs to.
func TaskOf(ctx context.Context) (*Task, bool) {
	t, ok := ctx.Value(taskKey{}).(*Task)
	return t, ok
}

var errNoTask = errors.New("not the context of a step")

// Result returns what an earlier step of the run returned. The context is that
// of the handler.
func Result[T any](ctx context.Context, step string) (v T, err error) {
	t, ok := TaskOf(ctx)
	if !ok {
		return v, fmt.Errorf("result of %q: %w", step, errNoTask)
	}
	text, err := t.Output(step)
	if err != nil {
		return v, retry.Permanent(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, retry.Permanent(fmt.Errorf("result of %q: %w", step, err))
	}
	return v, nil
}

// Heartbeat says that the attempt is alive. A step with a HeartbeatTimeout must
// call it, or Progress, often enough. It returns why the attempt should end, if
// it should.
func Heartbeat(ctx context.Context) error { return Progress(ctx, nil) }

// Progress is a Heartbeat that says how far the attempt is, with anything that
// encoding/json can write. It is shown with the run; when called often, one of
// each second is kept.
func Progress(ctx context.Context, progress any) error {
	return report(ctx, func(a *attempt) error { return a.heartbeat(progress) })
}

// SaveProgress is Progress that is never left out. It is stored when SaveProgress
// returns nil, so that the next attempt has it even if this process is killed.
func SaveProgress(ctx context.Context, progress any) error {
	return report(ctx, func(a *attempt) error { return a.saveProgress(ctx, progress) })
}

// report calls do with the attempt of the context, and returns why the attempt should end.
func report(ctx context.Context, do func(*attempt) error) error {
	t, ok := TaskOf(ctx)
	if !ok {
		return fmt.Errorf("progress: %w", errNoTask)
	}
	if err := do(t.attempt); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// snooze is not a failure.
type snooze struct {
	wait    time.Duration
	until   int64 // by the calendar, instead of wait
	limited bool
	now     bool // the next attempt begins at once; only with limited
	note    string
}

// Snooze is what a handler returns to be called again later without having
// failed: no attempt of the policy is spent. The note says why; it is shown with the
// run.
func Snooze(wait time.Duration, note string) error {
	return &snooze{wait: max(wait, time.Nanosecond), note: note}
}

// SnoozeUntil is Snooze until a time of the calendar, which stays where it is
// when the clock is set.
func SnoozeUntil(t time.Time, note string) error {
	return &snooze{until: calendar(t), note: note}
}

// Limited is what a handler returns if it knows when to try again: when a quota is filled
// up, say. It uses one of [MaxWindows] instead of an attempt, and resets the attempt count. The
// policy's server-wait, server-slack and jitter apply. Like that of SnoozeUntil,
// the time is one of the calendar.
func Limited(until time.Time, note string) error {
	return &snooze{until: calendar(until), limited: true, note: note}
}

// LimitedFor is Limited for a duration, which does not change when the clock is set.
func LimitedFor(wait time.Duration, note string) error {
	return &snooze{wait: max(wait, time.Nanosecond), limited: true, note: note}
}

// SpendWindow is Limited for a handler that has something else to do until then. It spends a
// window, or the step gives up, just as Limited would have it; but the next attempt begins at
// once. That one may return [SnoozeUntil] when it is done.
func SpendWindow(until time.Time, note string) error {
	return &snooze{until: calendar(until), limited: true, now: true, note: note}
}

// calendar returns the time as it is stored, which is never zero.
func calendar(t time.Time) int64 {
	if t.After(farthest) {
		t = farthest
	}
	return max(t.UnixNano(), 1)
}

func (s *snooze) Error() string {
	when := fmt.Sprintf("for %v", s.wait)
	if s.until != 0 {
		when = "until " + time.Unix(0, s.until).Format(time.RFC3339)
	}
	if s.note == "" {
		return "snoozed " + when
	}
	return fmt.Sprintf("snoozed %s: %s", when, s.note)
}

// kept is an error with something for the next attempt.
type kept struct {
	error
	memo any
}

func (k *kept) Unwrap() error { return k.error }

// Keep adds a memo to the error that a handler returns, of any kind. The step's next
// attempt finds it as [Task.Progress]. Both are stored together or not at all. The memo is
// anything small that encoding/json can write.
func Keep(err error, memo any) error {
	if err == nil {
		return nil
	}
	return &kept{err, memo}
}
