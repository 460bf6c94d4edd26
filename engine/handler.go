package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// Handler executes an attempt of a step. The output must be JSON; nil means null.
type Handler func(ctx context.Context, t *Task) (output []byte, err error)

// adapt makes a handler from a function with typed input and output.
func adapt[In, Out any](do func(context.Context, In) (Out, error)) workflow.Handler {
	if do == nil {
		return workflow.Handler{}
	}
	call := typed("step", do)
	return workflow.Handler{IsJSON: true, Do: func(ctx context.Context, t *Task) ([]byte, error) { return call(ctx, t.Input) }}
}

// typed makes a function of JSON from the function of a step or a flow, which is called with a context or a Flow.
func typed[With, In, Out any](what string, do func(With, In) (Out, error)) func(With, json.RawMessage) ([]byte, error) {
	return func(with With, input json.RawMessage) ([]byte, error) {
		var in In
		if len(input) > 0 {
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, retry.Permanent(fmt.Errorf("input of the run: %w", err))
			}
		}
		out, err := do(with, in)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(out)
		if err != nil {
			return nil, retry.Permanent(fmt.Errorf("output of the %s: %w", what, err))
		}
		return text, nil
	}
}

// TaskOf returns the task of a handler's context. It returns false for other contexts.
func TaskOf(ctx context.Context) (*Task, bool) {
	if a := shard.AttemptOf(ctx); a != nil {
		return &a.Task, true
	}
	return nil, false
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
	return report(ctx, func(a *shard.Attempt) error { return a.SendProgress(progress) })
}

// SaveProgress is [Progress] for a value that must not be dropped. When SaveProgress
// returns nil, the value is stored: the next attempt gets it as [Task.Progress] even if
// this process is killed.
func SaveProgress(ctx context.Context, progress any) error {
	return report(ctx, func(a *shard.Attempt) error { return a.SaveProgress(ctx, progress) })
}

// report restarts the heartbeat timeout of the context's attempt and calls do. It returns the
// error of do, or else why the attempt should end.
func report(ctx context.Context, do func(*shard.Attempt) error) error {
	a := shard.AttemptOf(ctx)
	if a == nil {
		return fmt.Errorf("progress: %w", errNoTask)
	}
	a.KeepAlive()
	if err := do(a); err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	return context.Cause(ctx)
}

// Snooze returns an error that a handler returns to be called again after a wait. The
// attempt has not failed, and does not count for the policy. The note says why; it is shown
// with the run.
func Snooze(wait time.Duration, note string) error {
	return &workflow.Snooze{Wait: max(wait, time.Nanosecond), Note: note}
}

// SnoozeUntil is [Snooze] until a point in time by the wall clock. If the clock is set, the
// wait becomes longer or shorter.
func SnoozeUntil(t time.Time, note string) error {
	return &workflow.Snooze{Until: workflow.StoredTime(t), Note: note}
}

// Limited returns an error that a handler returns if it knows when to try again, for
// example when a quota is renewed. It uses one of [MaxWindows] instead of an attempt, and
// resets the attempt count. The policy's server-wait, server-slack and jitter apply. Like
// the time of [SnoozeUntil], until is a point in time by the wall clock.
func Limited(until time.Time, note string) error {
	return &workflow.Snooze{Until: workflow.StoredTime(until), Limited: true, Note: note}
}

// LimitedFor is [Limited] with a duration, which does not change when the clock is set.
func LimitedFor(wait time.Duration, note string) error {
	return &workflow.Snooze{Wait: max(wait, time.Nanosecond), Limited: true, Note: note}
}

// SpendWindow is [Limited] for a handler that has other work to do until then. Like Limited
// it uses one of [MaxWindows], or the step gives up if none is left. But the next attempt
// begins at once. When the other work is done, that attempt may return [SnoozeUntil].
func SpendWindow(until time.Time, note string) error {
	return &workflow.Snooze{Until: workflow.StoredTime(until), Limited: true, Now: true, Note: note}
}

// Keep adds a memo to any error that a handler returns. The next attempt of the step gets
// the memo as [Task.Progress]. The outcome of the attempt and the memo are stored in one
// write. The memo is any small value that encoding/json can write; one that can't be stored
// is logged and dropped. Keep returns nil if err is nil.
func Keep(err error, memo any) error {
	if err == nil {
		return nil
	}
	return workflow.Keep(err, memo)
}
