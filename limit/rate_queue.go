package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// RateQueueConfig says how often something may happen, and who may wait for it.
type RateQueueConfig struct {
	Rate    Frequency     // events per span of time
	Burst   int           // events that may come at once after a pause; 0 means 1
	MaxWait time.Duration // no caller waits longer; 0 means none waits
	Queue   int           // callers that may wait; 0 means none
	Aging   time.Duration // a waiter rises one class per this long; 0 means 10s
}

// Validate reports everything that is wrong with the configuration, each
// problem with its field's name.
func (c RateQueueConfig) Validate() error {
	errs := []error{RateConfig{Rate: c.Rate, Burst: c.Burst, MaxWait: c.MaxWait}.Validate()}
	if c.Queue < 0 {
		errs = append(errs, fmt.Errorf("queue: %d is negative", c.Queue))
	}
	if c.Aging < 0 {
		errs = append(errs, fmt.Errorf("aging: %v is negative", c.Aging))
	}
	return errors.Join(errs...)
}

// RateQueue is a [Rate] whose callers wait in the order of their priority, as those
// of a [Concurrency] do. A slot belongs to no caller before its time has come: then
// the most urgent of those who wait gets it.
type RateQueue struct {
	rate    *Rate
	maxWait time.Duration
	waiting atomic.Int64 // callers in the queue: while there are none, the rate is all that matters

	mu    sync.Mutex
	queue queue
	room  int         // waiters at most
	timer *time.Timer // for the next slot; nil while nobody waits
}

// NewRateQueue returns a limit whose burst is whole.
func NewRateQueue(cfg RateQueueConfig) (*RateQueue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, misused("NewRateQueue", err)
	}
	rate, err := NewRate(RateConfig{Rate: cfg.Rate, Burst: cfg.Burst})
	if err != nil {
		return nil, err
	}
	return &RateQueue{rate: rate, maxWait: cfg.MaxWait, queue: newQueue(cmp.Or(cfg.Aging, defaultAging)), room: cfg.Queue}, nil
}

// Allow reports whether an event may happen now, and counts it if so. It is false
// while others wait.
func (q *RateQueue) Allow() bool { return q.waiting.Load() == 0 && q.rate.Allow() }

// Wait returns when an event may happen, and counts it. The context's priority
// ([WithPriority]) and deadline decide the place in the queue.
//
// If the caller's turn is further away than MaxWait or the context's deadline, as
// things stand, Wait returns a [*RateError] at once. When the queue is full, a caller
// whose class is above that of the last waiter takes its place, and that one's Wait
// returns [ErrShed]; any other caller gets [ErrQueueFull] at once. When the context
// ends first, the error matches its error and its cause. A caller who was overtaken
// so often that MaxWait is over gets a [*RateError].
func (q *RateQueue) Wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx, "a slot")
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
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-w.ready:
	case <-limit.C:
	case <-ctx.Done():
	}
	q.leave(w)
	switch w.State() {
	case Granted:
		return nil
	case Shed:
		return ErrShed
	}
	if ctx.Err() != nil {
		return ended(ctx, "a slot")
	}
	return &RateError{Wait: q.nextIn(PriorityFrom(ctx)), Within: within}
}

// enqueue returns the caller's place in the queue, nil if it needs none.
func (q *RateQueue) enqueue(now time.Duration, p Priority, within time.Duration) (*Waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queue.len() == 0 && q.rate.AllowAt(now) {
		return nil, nil
	}
	if wait := q.rate.slotIn(now, q.queue.before(now, p)); wait > within {
		return nil, &RateError{Wait: wait, Within: max(within, 0)}
	}
	if q.queue.len() >= q.room {
		if !q.queue.outranks(now, p) {
			return nil, ErrQueueFull
		}
		shed := q.queue.last.top()
		q.queue.remove(shed)
		shed.settle(Shed)
	}
	w := q.queue.push(now, p, clock.Later(now, within))
	w.ready = make(chan struct{})
	q.schedule(now)
	return w, nil
}

// schedule sees to it that the next slot is given to somebody. The caller holds mu.
func (q *RateQueue) schedule(now time.Duration) {
	q.waiting.Store(int64(q.queue.len()))
	switch {
	case q.queue.len() == 0:
		if q.timer != nil {
			q.timer.Stop()
			q.timer = nil
		}
	case q.timer == nil:
		q.timer = time.AfterFunc(q.rate.slotIn(now, 0), q.serve)
	}
}

// serve gives the slots whose time has come to the most urgent waiters.
func (q *RateQueue) serve() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := clock.Now()
	for q.queue.len() > 0 {
		_, full, ok := q.rate.reserve(now, 0)
		if !ok {
			break
		}
		w := q.queue.pop(now)
		if w == nil { // all of them were late
			q.rate.giveBack(full)
			break
		}
		w.settle(Granted)
	}
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	q.schedule(now)
}

// leave takes a caller out of the queue that does not wait any more.
func (q *RateQueue) leave(w *Waiter) {
	if w.State() != Waiting {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.State() == Waiting {
		q.queue.remove(w)
		w.settle(Left)
		q.schedule(clock.Now())
	}
}

// nextIn returns how long a caller who came now would wait.
func (q *RateQueue) nextIn(p Priority) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := clock.Now()
	return q.rate.slotIn(now, q.queue.before(now, p))
}

// RateQueueStats is the state of a [RateQueue] at one moment.
type RateQueueStats struct {
	Waiting int          // callers in the queue
	ByClass [Classes]int // the same by the priority they came with: index [Priority.Class]
}

// Stats returns the current state.
func (q *RateQueue) Stats() RateQueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return RateQueueStats{Waiting: q.queue.len(), ByClass: q.queue.byClass}
}

// slotIn returns how long it is until the slot that has n others before it.
func (r *Rate) slotIn(now time.Duration, n int) time.Duration {
	floor, ceil := r.ticks.at(now)
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

// before returns how many waiters would be served before a newcomer of the class.
func (q *queue) before(now time.Duration, p Priority) (n int) {
	rank := q.rank(now, p)
	for _, w := range q.first.waiters {
		if w.rank <= rank {
			n++
		}
	}
	return n
}
