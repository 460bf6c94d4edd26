package dvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// returned is what a handler returned.
type returned struct {
	result Result
	err    error
}

// handlerError is an error of the handler. It keeps those of the retry package that
// a handler returns apart from those about it. Its text was asked for where a panic
// is the handler's.
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

// attempt makes one attempt. It returns when the handler has, or a grace after it
// was told to: then no other attempt may follow.
func (j *job) attempt(ctx context.Context) (Result, error) {
	done := j.call(ctx)
	select {
	case v := <-done:
		return v.result, inTime(ctx, v.err)
	case <-ctx.Done():
	}
	select { // both may have come at once
	case v := <-done:
		return v.result, inTime(ctx, v.err)
	default:
	}
	grace := j.runner.cfg.Grace
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case v := <-done:
		if v.err == nil {
			j.runner.late()
		}
		return Result{}, errors.Join(ctx.Err(), v.err)
	case <-timer.C:
		j.abandon(done)
		return Result{}, &stuckError{grace, ctx.Err()}
	}
}

// inTime adds to a failure that the attempt was told to end, if it was: a handler
// need not say so.
func inTime(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// call has the handler called. The channel gets what it returns.
func (j *job) call(ctx context.Context) <-chan returned {
	done := make(chan returned, 1)
	n := j.number()
	j.runner.group.Go(func() {
		v := returned{err: wrap(errGoexit)}
		defer func() {
			if p := recover(); p != nil {
				v = returned{err: wrap(fmt.Errorf("panic: %v", p))}
				j.runner.cfg.Logger.Error("nostr job panicked", "id", j.r.ID, "panic", p, "stack", string(debug.Stack()))
			}
			done <- v
		}()
		result, err := j.runner.cfg.Handler(ctx, j.r, func(p Progress) { j.report(n, p) })
		v = returned{result, wrap(err)}
	})
	return done
}

// abandon leaves an attempt alone that does not stop. Its result is dropped.
func (j *job) abandon(done <-chan returned) {
	j.stuck = make(chan struct{})
	j.runner.isStuck(+1)
	j.runner.cfg.Logger.Error("nostr job does not stop", "id", j.r.ID, "grace", j.runner.cfg.Grace)
	j.runner.group.Go(func() {
		defer close(j.stuck)
		if v := <-done; v.err == nil {
			j.runner.late()
		}
		j.runner.isStuck(-1)
	})
}

func (r *Runner) isStuck(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Stuck += n
}

func (r *Runner) late() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Late++
}
