package limit

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// RateQueueConfig configures a [RateQueue].
type RateQueueConfig struct {
	Rate    Frequency     // events per unit of time
	Burst   int           // events that may happen at once after a pause; 0 means 1
	MaxWait time.Duration // no caller waits longer; 0 means that no caller waits
	Queue   int           // callers that may wait; 0 means none
	Aging   time.Duration // a waiter rises by one priority class per this time; 0 means 10s
}

// Validate reports everything that is wrong with the configuration, each
// problem with its field's name.
func (c RateQueueConfig) Validate() error {
	return errors.Join(
		RateConfig{Rate: c.Rate, Burst: c.Burst, MaxWait: c.MaxWait}.Validate(),
		ConcurrencyConfig{Max: 1, Queue: c.Queue, Aging: c.Aging}.Validate())
}

// RateQueue is a [Rate] whose callers wait in the order of their priority, as in a
// [Concurrency]. A slot is not reserved in advance: when it is due, the most urgent
// waiter gets it.
type RateQueue struct {
	rate    *Rate
	maxWait time.Duration
	waiting atomic.Int64 // callers in the queue; while it is 0 a call needs no lock

	mu         sync.Mutex
	queue      queue
	maxWaiting int         // size limit of the queue
	timer      *time.Timer // for the next slot; nil while no caller waits
}

// NewRateQueue returns a limit with a full burst.
func NewRateQueue(cfg RateQueueConfig) (*RateQueue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, constructorError("NewRateQueue", err)
	}
	rate, err := NewRate(RateConfig{Rate: cfg.Rate, Burst: cfg.Burst})
	if err != nil {
		return nil, err
	}
	return &RateQueue{rate: rate, maxWait: cfg.MaxWait, queue: newQueue(cmp.Or(cfg.Aging, defaultAging)), maxWaiting: cfg.Queue}, nil
}

// Allow reports whether an event may happen now, and counts it if so. It
// returns false while callers wait.
func (q *RateQueue) Allow() bool { return q.waiting.Load() == 0 && q.rate.Allow() }

// Wait blocks until an event may happen, and counts it. The context's priority
// ([WithPriority]) and deadline decide the place in the queue.
//
// If so many callers are ahead that the wait would exceed MaxWait or the context's
// deadline, Wait returns a [*RateError] at once. When the queue is full, a caller
// whose class is above that of the last waiter replaces it, and the Wait of that
// waiter returns [ErrShed]; any other caller gets [ErrQueueFull] at once. If the
// context ends first, the error matches its error and its cause. A caller that still
// waits after MaxWait, because more urgent callers got the slots, gets a
// [*RateError].
func (q *RateQueue) Wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return contextError(ctx, "a slot")
	}
	if q.Allow() {
		return nil
	}
	within := q.maxWait
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline))
	}
	w, err := q.enqueue(clock.Now(), PriorityFrom(ctx), within)
	if err != nil || w == nil {
		return err
	}
	select {
	case <-w.ready:
	case <-time.After(within):
	case <-ctx.Done():
	}
	q.removeWaiter(w)
	switch w.State() {
	case Granted:
		return nil
	case Shed:
		return ErrShed
	}
	if ctx.Err() != nil {
		return contextError(ctx, "a slot")
	}
	return &RateError{Wait: q.expectedWait(PriorityFrom(ctx)), Within: within}
}

// enqueue adds the caller to the queue and returns its place, or nil if the event
// may happen now. within is how long the caller can wait.
func (q *RateQueue) enqueue(now time.Duration, p Priority, within time.Duration) (*Waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queue.len() == 0 && q.rate.AllowAt(now) {
		return nil, nil
	}
	if wait := q.rate.slotIn(now, q.queue.countAhead(now, p)); wait > within {
		return nil, &RateError{Wait: wait, Within: max(within, 0)}
	}
	if _, err := q.queue.makeRoom(now, p, q.maxWaiting); err != nil {
		return nil, err
	}
	w := q.queue.push(now, p, clock.Later(now, within))
	w.ready = make(chan struct{})
	q.schedule(now)
	return w, nil
}

// schedule sets the timer for the next slot while callers wait, and stops it
// otherwise. The caller holds mu.
func (q *RateQueue) schedule(now time.Duration) {
	q.waiting.Store(int64(q.queue.len()))
	switch {
	case q.queue.len() == 0:
		if q.timer != nil {
			q.timer.Stop()
			q.timer = nil
		}
	case q.timer == nil:
		q.timer = time.AfterFunc(q.rate.slotIn(now, 0), q.grantDueSlots)
	}
}

// grantDueSlots gives the slots that are due to the most urgent waiters.
func (q *RateQueue) grantDueSlots() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := clock.Now()
	for q.queue.len() > 0 {
		_, full, ok := q.rate.reserve(now, 0)
		if !ok {
			break
		}
		w := q.queue.pop(now)
		if w == nil { // all waiters were past their deadlines
			q.rate.returnSlot(full)
			break
		}
		w.finish(Granted)
	}
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	q.schedule(now)
}

// removeWaiter removes a caller that stops waiting from the queue.
func (q *RateQueue) removeWaiter(w *Waiter) {
	if w.State() != Waiting {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.State() == Waiting {
		q.queue.remove(w)
		w.finish(Left)
		q.schedule(clock.Now())
	}
}

// expectedWait returns how long a caller that arrives now would wait.
func (q *RateQueue) expectedWait(p Priority) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := clock.Now()
	return q.rate.slotIn(now, q.queue.countAhead(now, p))
}

// RateQueueStats is the state of a [RateQueue] at one moment.
type RateQueueStats struct {
	Waiting int          // callers in the queue
	ByClass [Classes]int // waiting callers by the priority they came with: index [Priority.Class]
}

// Stats returns the current state.
func (q *RateQueue) Stats() RateQueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return RateQueueStats{Waiting: q.queue.len(), ByClass: q.queue.byClass}
}

// slotIn returns how long a caller waits for its slot if n other callers get a slot
// before it.
func (r *Rate) slotIn(now time.Duration, n int) time.Duration {
	floor, ceil := r.ticks.floorCeil(now)
	full := r.full.Load()
	switch {
	case int64(n) > maxRefill/r.ticks.step:
		return math.MaxInt64
	case n > 0:
		full = max(full, ceil) + int64(n)*r.ticks.step
	}
	if slot := full - r.ahead; slot > floor {
		return r.ticks.time(slot) - max(now, 0)
	}
	return 0
}

// countAhead returns how many waiters would be served before a new caller.
func (q *queue) countAhead(now time.Duration, p Priority) (n int) {
	rank := q.rank(now, p)
	for _, w := range q.first.waiters {
		if w.rank <= rank {
			n++
		}
	}
	return n
}
