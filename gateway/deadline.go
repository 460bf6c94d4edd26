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
func withCallersDeadline(parent context.Context, h http.Header) (d *callerDeadline, cancel func()) {
	left, ok := retryhttp.TimeLeft(h)
	if !ok {
		return nil, nil
	}
	d, cancel = withDeadline(parent, left)
	d.total = -1
	if total, ok := retryhttp.TotalTimeLeft(h); ok {
		d.total = total - left
	}
	return d, cancel
}

// withDeadline returns a context that ends after so long. cancel frees what it
// holds.
func withDeadline(parent context.Context, left time.Duration) (d *callerDeadline, cancel func()) {
	ctx, end := context.WithCancelCause(parent)
	d = &callerDeadline{Context: ctx, at: time.Now().Add(left)}
	if left <= 0 {
		end(context.DeadlineExceeded)
	}
	d.timer = time.AfterFunc(left, func() {
		end(context.DeadlineExceeded)
		d.upload.Load().stop()
	})
	return d, func() {
		d.timer.Stop()
		end(nil)
	}
}

// streamBegins lets an event stream go on after a deadline that is for the beginning of
// the answer. A deadline for all of it stays.
func (d *callerDeadline) streamBegins() {
	if d == nil || d.total == 0 || !d.timer.Stop() {
		return
	}
	if d.total > 0 {
		d.timer.Reset(time.Until(d.at) + d.total)
	}
}

// Deadline implements [context.Context].
func (d *callerDeadline) Deadline() (time.Time, bool) {
	if at, ok := d.Context.Deadline(); ok && at.Before(d.at) {
		return at, true
	}
	return d.at, true
}

// Err implements [context.Context].
func (d *callerDeadline) Err() error {
	err := d.Context.Err()
	if err != nil && errors.Is(context.Cause(d.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}
