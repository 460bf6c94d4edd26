package limit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// EnqueueAt asks for a permit without blocking: what [Concurrency.Acquire] does
// before it waits, for simulators and event loops. The time now and the deadline
// are since any fixed origin; a deadline of 0 means none.
//
// The waiter's state is Granted if a permit was free, else Waiting; it changes
// through later calls of ReleaseAt, SetMaxAt and EnqueueAt, which return whom
// they granted or shed. A caller that is refused gets [ErrQueueFull], or
// [context.DeadlineExceeded] if its deadline has passed.
func (c *Concurrency) EnqueueAt(now time.Duration, p Priority, deadline time.Duration) (w, shed *Waiter, err error) {
	return c.enqueue(now, p, deadline, false)
}

// enqueue is EnqueueAt. blocks says that a goroutine will wait for the outcome.
func (c *Concurrency) enqueue(now time.Duration, p Priority, deadline time.Duration, blocks bool) (w, shed *Waiter, err error) {
	if passed(deadline, now) {
		return nil, nil, context.DeadlineExceeded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.flagOrTake() {
		w = &Waiter{}
		w.settle(Granted)
		return w, nil, nil
	}
	defer c.unflagIfEmpty()
	if c.queue.len() >= c.room {
		if !c.queue.outranks(now, p) {
			return nil, nil, ErrQueueFull
		}
		shed = c.queue.last.top()
		c.queue.remove(shed)
		shed.settle(Shed)
	}
	w = c.queue.push(now, p, deadline)
	if blocks {
		w.ready = make(chan struct{})
	}
	return w, shed, nil
}

// flagOrTake takes a permit and returns false if one is free and nobody waits.
// Otherwise it makes sure that the waiting flag is up: from then on only the
// holder of mu takes permits, and every release comes to it.
func (c *Concurrency) flagOrTake() bool {
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

// unflagIfEmpty lowers the flag when the last waiter is gone.
func (c *Concurrency) unflagIfEmpty() {
	if c.queue.len() == 0 {
		c.word.And(int64(^waitingFlag))
	}
}

// wait is the blocking shell over the queue.
func (c *Concurrency) wait(ctx context.Context) error {
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
			return ended(ctx, "a permit")
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

func waitError(err error) error {
	if errors.Is(err, ErrQueueFull) {
		return err
	}
	return fmt.Errorf("limit: wait for a permit: %w", err)
}

// deadlineOf returns the context's deadline on the time line of now.
func deadlineOf(ctx context.Context, now time.Duration) time.Duration {
	d, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(d)
	if left <= 0 {
		return 1 // over; 0 would mean none
	}
	return clock.Later(now, left)
}

// abandon removes a waiter whose caller went away. If the permit arrived at the
// same moment it goes on to the next waiter: the caller will not use it.
func (c *Concurrency) abandon(w *Waiter) {
	if !c.Cancel(w) && w.State() == Granted {
		c.Release()
	}
}

// Cancel takes a waiter out of the queue. It returns false if the wait was over
// already; a waiter that is Granted then keeps its permit and must release it.
func (c *Concurrency) Cancel(w *Waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.State() != Waiting {
		return false
	}
	c.queue.remove(w)
	w.settle(Left)
	c.unflagIfEmpty()
	return true
}

// ReleaseAt gives a permit back and returns the waiter that got it, nil if
// nobody waited for it.
func (c *Concurrency) ReleaseAt(now time.Duration) (granted *Waiter) {
	if p := c.add(-onePermit); p.waiting() || p.inUse() < 0 {
		return c.released(p, now)
	}
	return nil
}

// released does what is left to do after a release that left p behind.
func (c *Concurrency) released(p permits, now time.Duration) *Waiter {
	if p.inUse() < 0 {
		c.add(onePermit) // it was one too many
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.grant(now)
}

// grant gives a free permit to the most urgent waiter, if there are both. The
// caller holds mu.
func (c *Concurrency) grant(now time.Duration) *Waiter {
	if c.queue.len() == 0 || !permits(c.word.Load()).free() {
		return nil
	}
	defer c.unflagIfEmpty()
	w := c.queue.pop(now)
	if w != nil {
		c.add(onePermit)
		w.settle(Granted)
	}
	return w
}

// SetMaxAt is [Concurrency.SetMax] for simulators: it returns the waiters that
// a higher maximum let in.
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
