package retry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// attemptContext is the context of one attempt. It ends when the attempt does,
// or at its deadline. A context of the standard library costs a timer whether
// or not somebody listens; this one makes it when Done is first asked for.
type attemptContext struct {
	context.Context // the caller's
	deadline        time.Time
	timeout         TimeoutError // the cause at the deadline, if the deadline is ours
	call            uint64
	attempt         int

	inner atomic.Pointer[cancelable] // of, once it is made
	of    cancelable
	mu    sync.Mutex // held while it is made
	ended atomic.Bool
}

// cancelable is a context of the standard library with its cancel function.
type cancelable struct {
	context.Context
	cancel context.CancelFunc
}

// newAttemptContext returns the context of an attempt that begins now. left is
// what the total timeout leaves; zero limits are none.
func newAttemptContext(parent context.Context, p *Policy, left time.Duration) *attemptContext {
	c := &attemptContext{Context: parent}
	limit := p.AttemptTimeout
	if p.TotalTimeout > 0 && (limit == 0 || left < limit) {
		c.timeout = TimeoutError{Limit: p.TotalTimeout, Total: true}
		limit = left
	} else {
		c.timeout.Limit = limit
	}
	if limit != 0 {
		c.deadline = time.Now().Add(limit)
		if d, ok := parent.Deadline(); ok && !c.deadline.Before(d) {
			c.deadline, c.timeout = d, TimeoutError{}
		}
	}
	return c
}

// ours reports whether it is our own limit that sets the deadline.
func (c *attemptContext) ours() bool { return c.timeout.Limit != 0 }

// timedOut reports whether our own limit has been reached.
func (c *attemptContext) timedOut() bool { return c.ours() && !time.Now().Before(c.deadline) }

// Deadline implements [context.Context].
func (c *attemptContext) Deadline() (time.Time, bool) {
	if c.deadline.IsZero() {
		return c.Context.Deadline()
	}
	return c.deadline, true
}

// Done implements [context.Context].
func (c *attemptContext) Done() <-chan struct{} { return c.real().Done() }

// Err implements [context.Context].
func (c *attemptContext) Err() error {
	if in := c.inner.Load(); in != nil {
		return in.Err()
	}
	if !c.ended.Load() && c.Context.Err() == nil && !c.timedOut() {
		return nil
	}
	// From here on Err, Done and context.Cause must agree for good.
	return c.real().Err()
}

// Value implements [context.Context]. The standard library finds the real
// context through it, and hangs children on that without a goroutine.
func (c *attemptContext) Value(key any) any {
	if in := c.inner.Load(); in != nil {
		return in.Value(key)
	}
	return c.Context.Value(key)
}

// real returns the standard context behind this one, made at the first call.
func (c *attemptContext) real() *cancelable {
	if in := c.inner.Load(); in != nil {
		return in
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if in := c.inner.Load(); in != nil {
		return in
	}
	in := &c.of
	if c.ours() {
		in.Context, in.cancel = context.WithDeadlineCause(c.Context, c.deadline, &c.timeout)
	} else {
		in.Context, in.cancel = context.WithCancel(c.Context)
	}
	c.inner.Store(in)
	if c.ended.Load() { // end may have looked before there was anything to cancel
		in.cancel()
	}
	return in
}

// end cancels the context.
func (c *attemptContext) end() {
	c.ended.Store(true)
	if in := c.inner.Load(); in != nil {
		in.cancel()
	}
}
