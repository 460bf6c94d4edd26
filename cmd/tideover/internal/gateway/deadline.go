package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/retryhttp"
)

// callerDeadline is a context that ends at the deadline of the caller.
type callerDeadline struct {
	context.Context
	at    time.Time     // of the first of the deadlines
	total time.Duration // after at, how long an event stream may take; below 0 means any time
	timer *time.Timer

	upload atomic.Pointer[upload] // of the request, which ends at the deadline
}

// withCallersDeadline returns a context that ends at the deadline that the headers of a
// request state, and nil if they state none. cancel frees what it holds.
func withCallersDeadline(parent context.Context, h http.Header) (u *callerDeadline, cancel func()) {
	left, ok := retryhttp.TimeLeft(h)
	if !ok {
		return nil, nil
	}
	u, cancel = withDeadline(parent, left)
	u.total = -1
	if total, ok := retryhttp.TotalTimeLeft(h); ok {
		u.total = total - left
	}
	return u, cancel
}

// withDeadline returns a context that ends after so long. cancel frees what it
// holds.
func withDeadline(parent context.Context, left time.Duration) (u *callerDeadline, cancel func()) {
	ctx, end := context.WithCancelCause(parent)
	u = &callerDeadline{Context: ctx, at: time.Now().Add(left)}
	if left <= 0 {
		end(context.DeadlineExceeded)
	}
	u.timer = time.AfterFunc(left, func() {
		end(context.DeadlineExceeded)
		u.upload.Load().stop()
	})
	return u, func() {
		u.timer.Stop()
		end(nil)
	}
}

// streamBegins lets an event stream go on after a deadline that is for the beginning of
// the answer. A deadline for all of it stays.
func (u *callerDeadline) streamBegins() {
	if u == nil || u.total == 0 || !u.timer.Stop() {
		return
	}
	if u.total > 0 {
		u.timer.Reset(time.Until(u.at) + u.total)
	}
}

// Deadline implements [context.Context].
func (u *callerDeadline) Deadline() (time.Time, bool) {
	if at, ok := u.Context.Deadline(); ok && at.Before(u.at) {
		return at, true
	}
	return u.at, true
}

// Err implements [context.Context].
func (u *callerDeadline) Err() error {
	err := u.Context.Err()
	if err != nil && errors.Is(context.Cause(u.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}
