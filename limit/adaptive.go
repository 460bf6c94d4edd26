package limit

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/validate"
)

// AdaptiveConfig configures an [Adaptive] limit.
type AdaptiveConfig struct {
	Min     int           // lower bound of the limit; 0 means 1
	Max     int           // upper bound of the limit, at least 1
	Initial int           // the limit at the start; 0 means 20, or the nearer of Min and Max
	Probe   time.Duration // how often the duration of a call without a queue is measured, see [Estimator]; 0 means 10s
	Queue   int           // callers that may wait; 0 means none
	Aging   time.Duration // a waiter rises by one priority class per this time; 0 means 10s
}

const (
	defaultInitial = 20
	defaultProbe   = 10 * time.Second
)

func (c AdaptiveConfig) withDefaults() AdaptiveConfig {
	c.Min = cmp.Or(c.Min, 1)
	c.Initial = cmp.Or(c.Initial, min(max(defaultInitial, c.Min), c.Max))
	c.Probe = cmp.Or(c.Probe, defaultProbe)
	return c
}

// Validate reports everything that is wrong with the configuration, each
// problem with its field's name.
func (c AdaptiveConfig) Validate() error {
	errs := validate.Problems{c.concurrency().Validate()}
	validate.NotNegative(&errs, "min", c.Min)
	errs.Check(c.Min < 0 || c.Min <= c.Max, "min: %d is above max %d", c.Min, c.Max)
	least := max(c.Min, 1)
	errs.Check(c.Initial == 0 || c.Initial >= least && c.Initial <= c.Max,
		"initial: %d is not between min %d and max %d", c.Initial, least, c.Max)
	validate.NotNegative(&errs, "probe", c.Probe)
	return errors.Join(errs...)
}

// concurrency returns the configuration of the underlying [Concurrency], with
// the largest limit as its maximum.
func (c AdaptiveConfig) concurrency() ConcurrencyConfig {
	return ConcurrencyConfig{Max: c.Max, Queue: c.Queue, Aging: c.Aging}
}

// Adaptive is a [Concurrency] whose maximum follows the capacity of the
// destination, estimated from the duration of calls; see [Estimator]. It suits
// destinations whose capacity is unknown or changes, and whose calls take
// longer when they queue. If the capacity is known, a fixed Concurrency is
// better.
type Adaptive struct {
	permits *Concurrency

	mu       sync.Mutex // held while the maximum changes, so that changes stay in order
	estimate *Estimator
}

// NewAdaptive returns a limit at its initial value.
func NewAdaptive(cfg AdaptiveConfig) (*Adaptive, error) {
	if err := cfg.Validate(); err != nil {
		return nil, constructorError("NewAdaptive", err)
	}
	estimate, err := NewEstimator(cfg)
	if err != nil {
		return nil, err
	}
	start := cfg.concurrency()
	start.Max = estimate.Limit()
	permits, err := NewConcurrency(start)
	if err != nil {
		return nil, err
	}
	return &Adaptive{permits: permits, estimate: estimate}, nil
}

// Result says what a call shows about the load of its destination.
type Result uint8

// The results. A failure that has nothing to do with load, such as an invalid
// request or a cancellation by the caller, is Ignored.
const (
	Answered Result = iota // the duration of the call counts
	Dropped                // the call failed because of overload: a timeout, a rejection for lack of capacity
	Ignored                // the call does not count; only its permit is released
)

// Acquire acquires a permit as [Concurrency.Acquire] does, and starts timing
// the call. The caller must end it with [Token.Done].
func (a *Adaptive) Acquire(ctx context.Context) (Token, error) {
	if err := a.permits.Acquire(ctx); err != nil {
		return Token{}, err
	}
	return Token{a: a, start: clock.Now()}, nil
}

// Stats returns the current state; its Max is the estimated limit.
func (a *Adaptive) Stats() ConcurrencyStats { return a.permits.Stats() }

// Token is the permit of one call. The zero Token holds none.
type Token struct {
	a     *Adaptive
	start time.Duration
}

// Done ends the call: it counts the call's duration according to the result and
// releases the permit. A second Done does nothing.
func (t *Token) Done(r Result) {
	a := t.a
	if a == nil {
		return
	}
	t.a = nil
	if r != Ignored {
		a.sample(clock.Now(), t.start, r == Dropped)
	}
	a.permits.Release()
}

// sample passes a call to the estimator and applies the new limit.
func (a *Adaptive) sample(now, start time.Duration, dropped bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.estimate.Limit()
	inUse := permits(a.permits.word.Load()).inUse()
	if n := a.estimate.SampleAt(now, now-start, inUse, dropped); n != before {
		// SetMaxAt fails only outside the bounds that were validated.
		_, _ = a.permits.SetMaxAt(now, n)
	}
}
