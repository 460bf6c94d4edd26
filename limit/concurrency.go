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
	"github.com/tideover/tideover/internal/validate"
)

// ConcurrencyConfig says how many calls may run at once and how many callers
// may wait.
type ConcurrencyConfig struct {
	Max   int           // calls at once, at least 1
	Queue int           // callers that may wait; 0 means none
	Aging time.Duration // a waiter rises by one priority class per this time; 0 means 10s
}

const (
	defaultAging = 10 * time.Second
	maxPermits   = 1<<31 - 1 // so that the maximum fits into Concurrency.word beside the waiting flag
)

// Validate reports everything that is wrong with the configuration, each
// problem with its field's name.
func (c ConcurrencyConfig) Validate() error {
	errs := validate.Problems{validMax(c.Max)}
	validate.NotNegative(&errs, "queue", c.Queue)
	validate.NotNegative(&errs, "aging", c.Aging)
	return errors.Join(errs...)
}

// validMax returns an error unless n is at least 1 and at most maxPermits.
func validMax(n int) error {
	switch {
	case n < 1:
		return fmt.Errorf("max: %d is below 1", n)
	case n > maxPermits:
		return fmt.Errorf("max: %d is above %d", n, maxPermits)
	}
	return nil
}

// Concurrency limits how many calls run at once. A call acquires a permit
// before it starts and releases it when it is over. Callers that find no free
// permit may wait, in the order of their priority.
//
// A waiter is served before every caller that comes later: while there are
// waiters, a released permit goes directly to the most urgent one, and
// TryAcquire returns false.
type Concurrency struct {
	word atomic.Int64 // the value of type permits; calls use only this word while no caller waits

	// While word has the waiting flag, only the holder of mu takes permits. The
	// flag is set exactly while the queue is not empty, except briefly while mu is
	// held.
	mu         sync.Mutex
	queue      queue
	maxWaiting int // size limit of the queue
}

// permits is the state of a Concurrency in one word. From the highest bits: the
// permits in use, which can be incremented and decremented independently of the
// rest; the maximum; the waiting flag.
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

// The errors of a caller that gets no permit, or no slot of a [RateQueue].
var (
	// ErrQueueFull means that the limit is reached and the queue is full.
	ErrQueueFull = errors.New("limit: no permit free and no room in the queue")

	// ErrShed means that a waiting caller was removed from the full queue to make
	// room for a more urgent one.
	ErrShed = errors.New("limit: shed from the queue for a more urgent caller")
)

// constructorError adds the name of the constructor to the problems of its
// configuration.
func constructorError(name string, err error) error { return fmt.Errorf("limit.%s: %w", name, err) }

// contextError returns the error of a wait that the end of the context
// interrupted. It matches both the context's error and its cause.
func contextError(ctx context.Context, wait string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("limit: wait for %s: %w", wait, cause)
	}
	return fmt.Errorf("limit: wait for %s: %w: %w", wait, err, cause)
}

// NewConcurrency returns a limit with all permits free.
func NewConcurrency(cfg ConcurrencyConfig) (*Concurrency, error) {
	if err := cfg.Validate(); err != nil {
		return nil, constructorError("NewConcurrency", err)
	}
	c := &Concurrency{queue: newQueue(cmp.Or(cfg.Aging, defaultAging)), maxWaiting: cfg.Queue}
	c.word.Store(int64(permits(0).withMax(cfg.Max)))
	return c, nil
}

// TryAcquire acquires a permit if one is free and no caller waits; it never
// blocks.
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

// Acquire acquires a permit, and waits for one if the queue has room. The
// context's priority ([WithPriority]) and deadline decide the place in the
// queue.
//
// When the queue is full, a caller whose class is above that of the last waiter
// replaces it, and the Acquire of that waiter returns [ErrShed]; any other
// caller gets [ErrQueueFull] at once. If the context ends first, the error
// matches its error and its cause.
func (c *Concurrency) Acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return contextError(ctx, "a permit")
	}
	if c.TryAcquire() {
		return nil
	}
	if c.maxWaiting == 0 {
		return ErrQueueFull
	}
	return c.acquireBlocking(ctx)
}

// Release returns a permit, to the most urgent waiter if there is one. A
// release while no permit is in use is ignored, so the count never falls below
// zero. A surplus release while other callers hold permits cannot be detected
// and frees one of theirs.
func (c *Concurrency) Release() {
	if p := c.add(-onePermit); p.waiting() || p.inUse() < 0 {
		c.handleRelease(p, clock.Now())
	}
}

func (c *Concurrency) add(n permits) permits { return permits(c.word.Add(int64(n))) }

func (c *Concurrency) swap(from, to permits) bool {
	return c.word.CompareAndSwap(int64(from), int64(to))
}

// SetMax changes how many calls may run at once. Calls above a lower maximum go
// on; the next releases bring the number down.
func (c *Concurrency) SetMax(n int) error {
	_, err := c.SetMaxAt(clock.Now(), n)
	return err
}

// ConcurrencyStats is the state of a [Concurrency] at one moment.
type ConcurrencyStats struct {
	Max     int          // number of permits
	InUse   int          // permits in use; above Max for a while after it was lowered
	Waiting int          // callers in the queue
	ByClass [Classes]int // waiting callers by the priority they came with: index [Priority.Class]
}

// Stats returns the current state.
func (c *Concurrency) Stats() ConcurrencyStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := permits(c.word.Load())
	return ConcurrencyStats{
		Max:     p.max(),
		InUse:   max(0, p.inUse()), // negative for a moment while a surplus release is reverted
		Waiting: c.queue.len(),
		ByClass: c.queue.byClass,
	}
}
