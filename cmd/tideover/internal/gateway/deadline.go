package gateway

import (
	"context"
	"errors"
	"time"
)

// until is a context that ends at a deadline, unless that is called off. What a
// caller says of its time is how long it waits for an answer to begin: a stream
// may take longer, and is the caller's to end.
type until struct {
	context.Context
	at    time.Time
	timer *time.Timer
}

// withDeadline returns a context that ends after so long. cancel frees what it
// holds.
func withDeadline(parent context.Context, left time.Duration) (u *until, cancel func()) {
	ctx, end := context.WithCancelCause(parent)
	u = &until{Context: ctx, at: time.Now().Add(left)}
	if left <= 0 {
		end(context.DeadlineExceeded)
	}
	u.timer = time.AfterFunc(left, func() { end(context.DeadlineExceeded) })
	return u, func() {
		u.timer.Stop()
		end(nil)
	}
}

// callOff lets the context live on after its deadline.
func (u *until) callOff() { u.timer.Stop() }

// Deadline implements [context.Context].
func (u *until) Deadline() (time.Time, bool) {
	if at, ok := u.Context.Deadline(); ok && at.Before(u.at) {
		return at, true
	}
	return u.at, true
}

// Err implements [context.Context].
func (u *until) Err() error {
	err := u.Context.Err()
	if err != nil && errors.Is(context.Cause(u.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}
