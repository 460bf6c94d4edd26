package limit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// EnqueueAt requests a permit without blocking, for simulators and event loops;
// see [Concurrency.Acquire]. The time now and the deadline are since any fixed
// origin; a deadline of 0 means none.
//
// The waiter's state is Granted if a permit was free, else Waiting. Later calls
// of ReleaseAt, SetMaxAt and EnqueueAt change it; they return the waiters that
// they granted or shed. A rejected caller gets [ErrQueueFull], or
// [context.DeadlineExceeded] if its deadline has passed.
func (c *Concurrency) EnqueueAt(now time.Duration, p Priority, deadline time.Duration) (w, shed *Waiter, err error) {
	return c.enqueue(now, p, deadline, false)
}

// enqueue is EnqueueAt. blocks means that a goroutine will wait for the result.
func (c *Concurrency) enqueue(now time.Duration, p Priority, deadline time.Duration, blocks bool) (w, shed *Waiter, err error) {
	if deadlinePassed(deadline, now) {
		return nil, nil, context.DeadlineExceeded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.flagOrAcquire() {
		w = &Waiter{}
		w.finish(Granted)
		return w, nil, nil
	}
	defer c.unflagIfEmpty()
	if shed, err = c.queue.makeRoom(now, p, c.maxWaiting); err != nil {
		return nil, nil, err
	}
	w = c.queue.push(now, p, deadline)
	if blocks {
		w.ready = make(chan struct{})
	}
	return w, shed, nil
}

// flagOrAcquire acquires a permit and returns false if one is free and no
// caller waits. Otherwise it makes sure that the waiting flag is set: from then
// on only the holder of mu takes permits, and every release locks mu.
func (c *Concurrency) flagOrAcquire() bool {
	for {
		p := permits(c.word.Load())
		switch {
		case p.waiting():
			return true
		case p.free():
			if c.swap(p, p+onePermit) {
				return false
			}
		case c.swap(p, p|waitingFlag):
			return true
		}
	}
}

// unflagIfEmpty clears the waiting flag if the queue is empty.
func (c *Concurrency) unflagIfEmpty() {
	if c.queue.len() == 0 {
		c.word.And(int64(^waitingFlag))
	}
}

// acquireBlocking enqueues the caller and waits for a permit.
func (c *Concurrency) acquireBlocking(ctx context.Context) error {
	now := clock.Now()
	w, _, err := c.enqueue(now, PriorityFrom(ctx), deadlineOf(ctx, now), true)
	if err != nil {
		return waitError(err)
	}
	if w.State() == Waiting {
		select {
		case <-w.ready:
		case <-ctx.Done():
			c.abandon(w)
			return contextError(ctx, "a permit")
		}
	}
	switch w.State() {
	case Shed:
		return ErrShed
	case Expired:
		return waitError(context.DeadlineExceeded)
	default:
		return nil
	}
}

// waitError adds the operation to an error, except to ErrQueueFull.
func waitError(err error) error {
	if errors.Is(err, ErrQueueFull) {
		return err
	}
	return fmt.Errorf("limit: wait for a permit: %w", err)
}

// deadlineOf converts the context's deadline to the origin of now; 0 means
// none.
func deadlineOf(ctx context.Context, now time.Duration) time.Duration {
	d, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(d)
	if left <= 0 {
		return 1 // in the past; 0 would mean none
	}
	return clock.Later(now, left)
}

// abandon removes a waiter whose caller gave up. If it was granted a permit at
// the same moment, the permit is released.
func (c *Concurrency) abandon(w *Waiter) {
	if !c.Cancel(w) && w.State() == Granted {
		c.Release()
	}
}

// Cancel removes a waiter from the queue. It returns false if the wait was over
// already; a waiter that is Granted then has a permit and must release it.
func (c *Concurrency) Cancel(w *Waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.State() != Waiting {
		return false
	}
	c.queue.remove(w)
	w.finish(Left)
	c.unflagIfEmpty()
	return true
}

// ReleaseAt returns a permit, and returns the waiter that got it; nil if no
// caller waited.
func (c *Concurrency) ReleaseAt(now time.Duration) (granted *Waiter) {
	if p := c.add(-onePermit); p.waiting() || p.inUse() < 0 {
		return c.handleRelease(p, now)
	}
	return nil
}

// handleRelease completes a release: p is the state after the permit was
// returned.
func (c *Concurrency) handleRelease(p permits, now time.Duration) *Waiter {
	if p.inUse() < 0 {
		c.add(onePermit) // revert a surplus release
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.grant(now)
}

// grant gives a free permit to the most urgent waiter and returns it; nil if no
// permit is free or no caller waits. The caller holds mu.
func (c *Concurrency) grant(now time.Duration) *Waiter {
	if c.queue.len() == 0 || !permits(c.word.Load()).free() {
		return nil
	}
	defer c.unflagIfEmpty()
	w := c.queue.pop(now)
	if w != nil {
		c.add(onePermit)
		w.finish(Granted)
	}
	return w
}

// SetMaxAt is [Concurrency.SetMax] for simulators: it returns the waiters that
// a higher maximum admitted.
func (c *Concurrency) SetMaxAt(now time.Duration, n int) (granted []*Waiter, err error) {
	if err := validMax(n); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if p := permits(c.word.Load()); c.swap(p, p.withMax(n)) {
			break
		}
	}
	for w := c.grant(now); w != nil; w = c.grant(now) {
		granted = append(granted, w)
	}
	return granted, nil
}
