package retry

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// attemptContext is the context of one attempt. It ends when the attempt does,
// or at its deadline. A context of the standard library starts a timer
// at once; this one starts it when Done is called for the first time.
type attemptContext struct {
	context.Context               // the caller's
	deadline        time.Duration // the clock's reading at our limit; 0 means that we have none
	timeout         TimeoutError  // the cause when it is reached
	call            uint64
	attempt         int

	made  atomic.Bool // real is there
	ended atomic.Bool
	mu    sync.Mutex // held while real is made
	real  cancelable
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
	c.timeout.Limit = limit
	if p.TotalTimeout > 0 && (limit == 0 || left < limit) {
		c.timeout.Limit, c.timeout.Total = p.TotalTimeout, true
		limit = left
	}
	if limit == 0 {
		return c
	}
	if c.deadline = clock.Later(clock.Now(), limit); c.deadline == math.MaxInt64 {
		c.deadline = 0 // beyond all time
		return c
	}
	if d, ok := parent.Deadline(); ok && !clock.Time(c.deadline).Before(d) {
		c.deadline = 0 // the caller's comes first
	}
	return c
}

// timedOut reports whether our own limit has been reached.
func (c *attemptContext) timedOut() bool { return c.deadline != 0 && clock.Now() >= c.deadline }

// Deadline implements [context.Context].
func (c *attemptContext) Deadline() (time.Time, bool) {
	if c.deadline == 0 {
		return c.Context.Deadline()
	}
	return clock.Time(c.deadline), true
}

// Done implements [context.Context].
func (c *attemptContext) Done() <-chan struct{} { return c.make().Done() }

// Err implements [context.Context].
func (c *attemptContext) Err() error {
	if c.made.Load() {
		return c.real.Err()
	}
	if !c.ended.Load() && c.Context.Err() == nil && !c.timedOut() {
		return nil
	}
	// From here on Err, Done and context.Cause must agree for good.
	return c.make().Err()
}

// Value implements [context.Context]. The standard library finds the real
// context through it, and hangs children on that without a goroutine.
func (c *attemptContext) Value(key any) any {
	if c.made.Load() {
		return c.real.Value(key)
	}
	return c.Context.Value(key)
}

// make returns the standard context behind this one, made at the first call.
func (c *attemptContext) make() context.Context {
	if c.made.Load() {
		return c.real.Context
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made.Load() {
		return c.real.Context
	}
	if c.deadline != 0 {
		c.real.Context, c.real.cancel = context.WithDeadlineCause(c.Context, clock.Time(c.deadline), &c.timeout)
	} else {
		c.real.Context, c.real.cancel = context.WithCancel(c.Context)
	}
	c.made.Store(true)
	if c.ended.Load() { // end may have looked before there was anything to cancel
		c.real.cancel()
	}
	return c.real.Context
}

// end cancels the context.
func (c *attemptContext) end() {
	c.ended.Store(true)
	if c.made.Load() {
		c.real.cancel()
	}
}
