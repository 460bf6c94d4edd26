package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/retry"
)

// Handler executes an attempt of a step. The output must be JSON; nil means null.
type Handler func(ctx context.Context, t *Task) (output []byte, err error)

// Task describes the attempt that a handler is called for.
//
// Origin and Step together are the same in all attempts of a step, also after
// [Engine.Retry], [Engine.RetryLatest], [Engine.Replay] and [Engine.Rerun], of the run or of
// its parents: use them as the idempotency key of calls that must not be made twice. Do not use Run or Key: a
// repetition is a run with an id of its own and without a key. Add Undos if it is not 0: an
// operation that was undone must be executed again.
type Task struct {
	Run       string // id of the run
	Workflow  string // name of the run's workflow
	Key       string // the key that the run was started with; "" for none
	Origin    string // id of the first run of the chain of replays and reruns, or of the first child of the operation; the same as Run if the run repeats no other
	OriginKey string // the key that the run Origin was started with

	Step     string          // name of the step; of the undo of an operation: "undo:" and the name of the operation
	Attempt  int             // number of the attempt for the policy, from 1: Spent + 1. An attempt that was lost, released or snoozed is made again with the same number
	Attempts int             // limit of the policy; retry.Unlimited means no limit
	Total    int             // number of the attempt among all attempts of the step, from 1, as in AttemptInfo. It begins with 1 again if a retry of a flow calls an operation again
	Created  time.Time       // when the run was accepted
	Source   string          // who started the run
	Args     json.RawMessage // arguments of a step made by Call
	Input    json.RawMessage // input of the run
	Progress json.RawMessage // what the step last stored by Progress, SaveProgress or Keep
	Spent    int             // earlier attempts that count for the policy
	Windows  int             // number of times an attempt returned Limited

	// Operation is the number of the operation in the run of a flow, from 1. If a retry of the run
	// calls the operation again, it has another number. It is 0 for a step.
	Operation int

	// Undos is how often the operations of the run, and of the runs that it repeats, were undone
	// before. It is 0 for operations that have no undo: see DoUndo.
	Undos int

	attempt *attempt
	encoded bool // the output is known to be JSON, because adapt encoded it
}

// Output returns the output of another step of the run. This step must depend on that
// step, directly or through others.
func (t *Task) Output(step string) (json.RawMessage, error) { return t.attempt.output(step) }

// Before returns the names of the steps that this step depends on, directly or through
// others, in the order of the workflow.
func (t *Task) Before() []string { return t.attempt.before() }

// adapt makes a [Handler] from a function with typed input and output.
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

// TaskOf returns the task of a handler's context. It returns false for other contexts.
func TaskOf(ctx context.Context) (*Task, bool) {
	t, ok := ctx.Value(taskKey{}).(*Task)
	return t, ok
}

var errNoTask = errors.New("the context is not that of a handler")

// Result returns the output of another step of the run, decoded. ctx must be the context
// of a handler whose step depends on that step, directly or through others.
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

// Heartbeat says that the attempt is alive. The handler of a step with a
// [HeartbeatTimeout] must call it, or [Progress], more often than that. It returns why the
// attempt should end, or nil if it may continue.
func Heartbeat(ctx context.Context) error { return Progress(ctx, nil) }

// Progress is a [Heartbeat] that also reports how far the attempt is. progress is any small
// value that encoding/json can write; it is shown with the run. At most one value per
// second is stored, and others are dropped.
func Progress(ctx context.Context, progress any) error {
	return report(ctx, func(a *attempt) error { return a.sendProgress(progress) })
}

// SaveProgress is [Progress] for a value that must not be dropped. When SaveProgress
// returns nil, the value is stored: the next attempt gets it as [Task.Progress] even if
// this process is killed.
func SaveProgress(ctx context.Context, progress any) error {
	return report(ctx, func(a *attempt) error { return a.saveProgress(ctx, progress) })
}

// report restarts the heartbeat timeout of the context's attempt and calls do. It returns the
// error of do, or else why the attempt should end.
func report(ctx context.Context, do func(*attempt) error) error {
	t, ok := TaskOf(ctx)
	if !ok {
		return fmt.Errorf("progress: %w", errNoTask)
	}
	if a := t.attempt; a.alive != nil {
		a.alive.Reset(a.silence)
	}
	if err := do(t.attempt); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// snooze is an error that asks for another attempt later. It does not count as a failure.
type snooze struct {
	wait    time.Duration
	until   int64 // Unix nanoseconds; if not 0, it replaces wait
	limited bool  // made by Limited, LimitedFor or SpendWindow
	now     bool  // the next attempt begins at once; only with limited
	note    string
}

// Snooze returns an error that a handler returns to be called again after a wait. The
// attempt has not failed, and does not count for the policy. The note says why; it is shown
// with the run.
func Snooze(wait time.Duration, note string) error {
	return &snooze{wait: max(wait, time.Nanosecond), note: note}
}

// SnoozeUntil is [Snooze] until a point in time by the wall clock. If the clock is set, the
// wait becomes longer or shorter.
func SnoozeUntil(t time.Time, note string) error {
	return &snooze{until: calendar(t), note: note}
}

// Limited returns an error that a handler returns if it knows when to try again, for
// example when a quota is renewed. It uses one of [MaxWindows] instead of an attempt, and
// resets the attempt count. The policy's server-wait, server-slack and jitter apply. Like
// the time of [SnoozeUntil], until is a point in time by the wall clock.
func Limited(until time.Time, note string) error {
	return &snooze{until: calendar(until), limited: true, note: note}
}

// LimitedFor is [Limited] with a duration, which does not change when the clock is set.
func LimitedFor(wait time.Duration, note string) error {
	return &snooze{wait: max(wait, time.Nanosecond), limited: true, note: note}
}

// SpendWindow is [Limited] for a handler that has other work to do until then. Like Limited
// it uses one of [MaxWindows], or the step gives up if none is left. But the next attempt
// begins at once. When the other work is done, that attempt may return [SnoozeUntil].
func SpendWindow(until time.Time, note string) error {
	return &snooze{until: calendar(until), limited: true, now: true, note: note}
}

// calendar returns the time in Unix nanoseconds, at least 1 and at most farthest: 0 would
// mean no time.
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

// kept is an error with a memo for the next attempt: see Keep.
type kept struct {
	error
	memo any
}

func (k *kept) Unwrap() error { return k.error }

// Keep adds a memo to any error that a handler returns. The next attempt of the step gets
// the memo as [Task.Progress]. The outcome of the attempt and the memo are stored in one
// write. The memo is any small value that encoding/json can write; one that can't be stored
// is logged and dropped. Keep returns nil if err is nil.
func Keep(err error, memo any) error {
	if err == nil {
		return nil
	}
	return &kept{err, memo}
}
