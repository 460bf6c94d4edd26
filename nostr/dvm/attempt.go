package dvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// handlerResult is what a handler returned.
type handlerResult struct {
	result Result
	err    error
}

// handlerError wraps an error that the handler returned, so that an error of package
// retry in it is not mistaken for one about the attempts of this job. The text is
// computed when the handler returns, so that a panic in the method Error counts as a
// panic of the handler.
type handlerError struct {
	err  error
	text string
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return &handlerError{err, cmp.Or(err.Error(), "unknown error")}
}

func (e *handlerError) Error() string { return e.text }
func (e *handlerError) Unwrap() error { return e.err }

var errGoexit = errors.New("the handler ended its goroutine")

// attempt makes one attempt. It returns when the handler has returned, or when
// the grace period after the end of the context is over. In the second case the
// handler still runs, and no other attempt may follow.
func (j *job) attempt(ctx context.Context) (Result, error) {
	done := j.callHandler(ctx)
	select {
	case v := <-done:
		return v.result, joinContextError(ctx, v.err)
	case <-ctx.Done():
	}
	select { // the handler may have returned when the context ended
	case v := <-done:
		return v.result, joinContextError(ctx, v.err)
	default:
	}
	grace := j.runner.cfg.Grace
	select {
	case v := <-done:
		if v.err == nil {
			j.runner.count(countLate)
		}
		return Result{}, errors.Join(ctx.Err(), v.err)
	case <-time.After(grace):
		j.abandon(done)
		return Result{}, &stuckError{grace, ctx.Err()}
	}
}

// joinContextError adds the context's error to the failure of a handler, because the
// handler may have returned another error when the context ended.
func joinContextError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// callHandler calls the handler on its own goroutine. The channel receives its
// result.
func (j *job) callHandler(ctx context.Context) <-chan handlerResult {
	done := make(chan handlerResult, 1)
	n := j.currentAttempt()
	j.runner.group.Go(func() {
		v := handlerResult{err: wrap(errGoexit)}
		defer func() {
			if p := recover(); p != nil {
				v = handlerResult{err: wrap(fmt.Errorf("panic: %v", p))}
				j.runner.cfg.Logger.Error("nostr job panicked", "id", j.r.ID, "panic", p, "stack", string(debug.Stack()))
			}
			done <- v
		}()
		result, err := j.runner.cfg.Handler(ctx, j.r, func(p Progress) { j.report(n, p) })
		v = handlerResult{result, wrap(err)}
	})
	return done
}

// abandon gives up waiting for an attempt that does not stop. The result of the
// attempt is dropped.
func (j *job) abandon(done <-chan handlerResult) {
	j.stuck = make(chan struct{})
	j.runner.count(func(s *RunnerStats) { s.Stuck++ })
	j.runner.cfg.Logger.Error("nostr job does not stop", "id", j.r.ID, "grace", j.runner.cfg.Grace)
	j.runner.group.Go(func() {
		defer close(j.stuck)
		if v := <-done; v.err == nil {
			j.runner.count(countLate)
		}
		j.runner.count(func(s *RunnerStats) { s.Stuck-- })
	})
}

// count changes the statistics.
func (r *Runner) count(change func(*RunnerStats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.stats)
}

func countLate(s *RunnerStats) { s.Late++ }
