package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/retryhttp"
)

// callerDeadline is a context that ends at the deadline that the caller has stated.
type callerDeadline struct {
	context.Context
	end   context.CancelCauseFunc
	at    time.Time     // the earliest of the deadlines
	total time.Duration // how long an event stream may continue after at; below 0 means no limit
	timer *time.Timer

	upload atomic.Pointer[upload] // upload of the request, which stops at the deadline
}

// newCallerDeadline returns a context that ends after left. h has the headers of the
// request, which may state a longer time for a stream.
func newCallerDeadline(parent context.Context, left time.Duration, h http.Header) *callerDeadline {
	ctx, end := context.WithCancelCause(parent)
	d := &callerDeadline{Context: ctx, end: end, at: time.Now().Add(left), total: -1}
	if total, ok := retryhttp.TotalTimeLeft(h); ok {
		d.total = total - left
	}
	if left <= 0 {
		end(context.DeadlineExceeded)
	}
	d.timer = time.AfterFunc(left, func() {
		end(context.DeadlineExceeded)
		d.upload.Load().stop()
	})
	return d
}

// cancel releases the resources of the context.
func (d *callerDeadline) cancel() {
	d.timer.Stop()
	d.end(nil)
}

// streamBegins extends the context for an event stream if the deadline was for the
// beginning of the answer. A deadline for the whole answer stays.
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
