package health

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tideover/tideover/backoff"
)

// RecoveryConfig says what a [Recovery] weighs against what. It is comparable
// plain data, and its zero value is usable.
type RecoveryConfig struct {
	// Cost is how much later the recovery may be noticed for one probe less; 0
	// means 1s. It is the price of a probe in the only currency there is here.
	Cost time.Duration

	// Backoff is the exponential schedule from which the gaps never stray far.
	// Zero means 1s doubling to 60s, ±20 %.
	Backoff backoff.Schedule
}

// nearness bounds how far a gap may be from that of the exponential schedule:
// a quarter to four times. Whatever was learned, and from however strange a
// history, the worst case is a few times that of a schedule that learns nothing.
const nearness = 4

func (c RecoveryConfig) withDefaults() RecoveryConfig {
	c.Cost = cmp.Or(c.Cost, time.Second)
	c.Backoff = cmp.Or(c.Backoff, backoff.Schedule{
		Kind:   backoff.Exponential,
		Base:   time.Second,
		Cap:    time.Minute,
		Jitter: backoff.PlusMinus(0.2),
	})
	c.Backoff.Factor = cmp.Or(c.Backoff.Factor, 2)
	return c
}

// Validate reports everything that is wrong with the configuration, each problem
// with its field's name.
func (c RecoveryConfig) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Cost < 0 {
		bad("cost: %v is negative", c.Cost)
	}
	if c.Backoff == (backoff.Schedule{}) {
		return errors.Join(errs...)
	}
	if err := c.Backoff.Validate(); err != nil {
		bad("backoff: %w", err)
	}
	if c.Backoff.Kind != backoff.Exponential {
		bad("backoff: kind: is %v, want exponential", c.Backoff.Kind)
	}
	if c.Backoff.Cap == 0 {
		bad("backoff: cap: must be above zero")
	}
	if c.Backoff.MaxDoublings != 0 {
		bad("backoff: max-doublings: not used here, the cap is enough")
	}
	return errors.Join(errs...)
}

// Recovery estimates how long the outages of one destination last, from those
// there were, and says when to look next. It is statistics, not intelligence:
// for each span of an outage's age, on a logarithmic scale, the rate at which
// outages of that age ended.
//
// A gap is chosen so that probes and delay together cost least, and is kept
// within a quarter and four times that of the exponential schedule, whose cap it
// never exceeds. Without any history that alone beats a plain exponential; what
// history adds depends on the outages: docs/health.md has the measured numbers.
//
// All times are since the outage began, its first failure. Any goroutine may
// call the methods. The zero Recovery is ready for use.
type Recovery struct {
	config RecoveryConfig

	mu     sync.Mutex
	hazard hazard
}

// NewRecovery returns an estimate that has seen nothing.
func NewRecovery(cfg RecoveryConfig) (*Recovery, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	return &Recovery{config: cfg.withDefaults()}, nil
}

// Gap returns how long to wait from elapsed on until the next probe, before
// jitter.
func (r *Recovery) Gap(elapsed time.Duration) time.Duration {
	c := r.config.withDefaults()
	elapsed = max(elapsed, 0)
	plain := c.plain(elapsed)
	longest := furthest(plain, c.Backoff.Cap)
	r.mu.Lock()
	g := r.hazard.gap(elapsed.Seconds(), c.Cost.Seconds(), longest.Seconds())
	r.mu.Unlock()
	return min(max(seconds(g), plain/nearness, 1), longest)
}

// furthest returns the longest gap that is allowed where the schedule has the gap
// plain.
func furthest(plain, limit time.Duration) time.Duration {
	if plain > limit/nearness {
		return limit
	}
	return plain * nearness
}

// plain returns the gap of the exponential schedule at the time elapsed: where
// the gaps Base·Factor^k add up to t, the next one is Base + (Factor-1)·t.
func (c RecoveryConfig) plain(elapsed time.Duration) time.Duration {
	return min(seconds(c.Backoff.Base.Seconds()+(c.Backoff.Factor-1)*elapsed.Seconds()), c.Backoff.Cap)
}

// Next is [Recovery.Gap] with the schedule's jitter; u is a uniform random
// number. Jitter is cut off where the longest gap allowed is.
func (r *Recovery) Next(elapsed time.Duration, u uint64) time.Duration {
	c := r.config.withDefaults()
	longest := furthest(c.plain(max(elapsed, 0)), c.Backoff.Cap)
	return backoff.Schedule{Base: r.Gap(elapsed), Cap: longest, Jitter: c.Backoff.Jitter}.Delay(1, 0, u)
}

// Prediction says how much longer an outage is expected to last.
type Prediction struct {
	Median  time.Duration // half of such outages are over by then
	P90     time.Duration // nine in ten are
	Outages float64       // how many outages it rests on, older ones counted less; 0 means a guess
}

// Predict returns the prediction for an outage that has lasted elapsed.
func (r *Recovery) Predict(elapsed time.Duration) Prediction {
	t := max(elapsed, 0).Seconds()
	r.mu.Lock()
	defer r.mu.Unlock()
	return Prediction{
		Median:  seconds(r.hazard.remaining(t, 0.5)),
		P90:     seconds(r.hazard.remaining(t, 0.9)),
		Outages: r.hazard.outages,
	}
}

// Observe counts an outage that is over: a call at lastFailure still failed, the
// one at firstSuccess worked. An outage that ends before it fails is ignored.
func (r *Recovery) Observe(lastFailure, firstSuccess time.Duration) {
	lastFailure = max(lastFailure, 0)
	if firstSuccess <= lastFailure {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hazard.observe(lastFailure.Seconds(), firstSuccess.Seconds())
}
