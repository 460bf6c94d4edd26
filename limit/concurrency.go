package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// ConcurrencyConfig says how many calls may run at once and how many may wait.
type ConcurrencyConfig struct {
	Max   int           // calls at once, at least 1
	Queue int           // callers that may wait; 0 means none
	Aging time.Duration // a waiter rises one class per this long; 0 means 10s
}

const (
	defaultAging = 10 * time.Second
	maxPermits   = 1<<31 - 1 // what fits beside the flag in one word
)

// Validate reports everything that is wrong with the configuration, each
// problem with its field's name.
func (c ConcurrencyConfig) Validate() error {
	var errs []error
	if err := validMax(c.Max); err != nil {
		errs = append(errs, err)
	}
	if c.Queue < 0 {
		errs = append(errs, fmt.Errorf("queue: %d is negative", c.Queue))
	}
	if c.Aging < 0 {
		errs = append(errs, fmt.Errorf("aging: %v is negative", c.Aging))
	}
	return errors.Join(errs...)
}

func validMax(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("max: %d is below 1", n)
	case n > maxPermits:
		return fmt.Errorf("max: %d is above %d", n, maxPermits)
	}
	return nil
}

// Concurrency limits how many calls run at once. A call takes a permit before
// it starts and releases it when it is over. Callers that find none free may
// wait, in the order of their priority.
//
// Whoever waits is served before whoever comes later: while there are waiters a
// released permit goes straight to the most urgent one, and nobody overtakes it
// by luck.
type Concurrency struct {
	word atomic.Int64 // permits: all that matters while nobody waits

	// While the word has its waiting flag, only the holder of mu takes permits.
	// The flag is up exactly while the queue is not empty, but for moments within
	// the lock.
	mu    sync.Mutex
	queue queue
	room  int // waiters at most
}

// permits is the state of a Concurrency in one word: from above the permits in
// use, which may be added to and subtracted from without a look at the rest, the
// permits there are, and a flag.
type permits int64

const (
	waitingFlag permits = 1
	maxShift            = 1
	onePermit   permits = 1 << 32
)

func (p permits) inUse() int    { return int(p >> 32) }
func (p permits) max() int      { return int(uint32(p) >> maxShift) }
func (p permits) free() bool    { return p.inUse() < p.max() }
func (p permits) waiting() bool { return p&waitingFlag != 0 }

func (p permits) withMax(n int) permits {
	return p&^(onePermit-1) | permits(n)<<maxShift | p&waitingFlag
}

// NewConcurrency returns a limit with all permits free.
func NewConcurrency(cfg ConcurrencyConfig) (*Concurrency, error) {
	if err := cfg.Validate(); err != nil {
		return nil, misused("NewConcurrency", err)
	}
	c := &Concurrency{queue: newQueue(cmp.Or(cfg.Aging, defaultAging)), room: cfg.Queue}
	c.word.Store(int64(permits(0).withMax(cfg.Max)))
	return c, nil
}

// TryAcquire takes a permit if one is free and nobody waits for it.
func (c *Concurrency) TryAcquire() bool {
	for {
		p := permits(c.word.Load())
		if p.waiting() || !p.free() {
			return false
		}
		if c.swap(p, p+onePermit) {
			return true
		}
	}
}

// Acquire takes a permit, waiting for one if the queue has room. The context's
// priority ([WithPriority]) and deadline decide the place in the queue.
//
// When the queue is full, a caller whose class is above that of the last waiter
// takes its place, and that one's Acquire returns [ErrShed]; any other caller
// gets [ErrQueueFull] at once. When the context ends first, the error matches
// its error and its cause.
func (c *Concurrency) Acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx, "a permit")
	}
	if c.TryAcquire() {
		return nil
	}
	if c.room == 0 {
		return ErrQueueFull
	}
	return c.wait(ctx)
}

// Release gives a permit back, to the most urgent waiter if there is one. When
// no permit is in use a release is ignored, so the count never goes below zero.
// A release too many while others hold permits cannot be told from theirs.
func (c *Concurrency) Release() {
	if p := c.add(-onePermit); p.waiting() || p.inUse() < 0 {
		c.released(p, clock.Now())
	}
}

func (c *Concurrency) add(n permits) permits { return permits(c.word.Add(int64(n))) }

func (c *Concurrency) swap(from, to permits) bool {
	return c.word.CompareAndSwap(int64(from), int64(to))
}

// SetMax changes how many calls may run at once. Permits in use above a lower
// maximum are not taken away: the next releases bring the number down.
func (c *Concurrency) SetMax(n int) error {
	_, err := c.SetMaxAt(clock.Now(), n)
	return err
}

// ConcurrencyStats is the state of a [Concurrency] at one moment.
type ConcurrencyStats struct {
	Max     int          // permits there are
	InUse   int          // permits taken; above Max for a while after it was lowered
	Waiting int          // callers in the queue
	ByClass [Classes]int // the same by the priority they came with: index [Priority.Class]
}

// Stats returns the current state.
func (c *Concurrency) Stats() ConcurrencyStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := permits(c.word.Load())
	return ConcurrencyStats{
		Max:     p.max(),
		InUse:   max(0, p.inUse()), // below for a moment while a release too many is undone
		Waiting: c.queue.len(),
		ByClass: c.queue.byClass,
	}
}
