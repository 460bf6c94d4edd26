package health

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/validate"
)

// RecoveryConfig configures a [Recovery]. It is comparable plain data, and its
// zero value is usable.
type RecoveryConfig struct {
	// Cost is the price of a probe, as a delay: how much later a recovery may
	// be noticed if that saves one probe. 0 means 1s.
	Cost time.Duration

	// Backoff is the exponential schedule; the estimated gaps stay between a
	// quarter of its gaps and four times its gaps. Zero means 1s doubling to
	// 60s, ±20 %.
	Backoff backoff.Schedule
}

// maxGapFactor limits how far an estimated gap may be from the gap of the exponential
// schedule: a quarter to four times. So a misleading history makes the worst case
// only a few times as bad as the schedule alone.
const maxGapFactor = 4

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
	var errs validate.Problems
	validate.NotNegative(&errs, "cost", c.Cost)
	if c.Backoff == (backoff.Schedule{}) {
		return errors.Join(errs...)
	}
	errs.Field("backoff", c.Backoff.Validate())
	errs.Check(c.Backoff.Kind == backoff.Exponential, "backoff: kind: is %v, want exponential", c.Backoff.Kind)
	errs.Check(c.Backoff.Cap != 0, "backoff: cap: must be above zero")
	errs.Check(c.Backoff.MaxDoublings == 0, "backoff: max-doublings: not supported here: use cap")
	return errors.Join(errs...)
}

// Recovery estimates, from the past outages of one destination, how long its
// outages last, and returns when to probe next. It uses plain statistics: for
// each interval of an outage's age, on a logarithmic scale, the rate at which
// outages of that age ended.
//
// It chooses gaps for which the cost of probes and of late notice together is
// least, and keeps them between a quarter of the exponential schedule's gaps
// and four times those, never above the schedule's cap. Even without history
// this is better than a plain exponential schedule; docs/health.md has the
// measured numbers.
//
// All times are since the outage began, at its first failure. Any goroutine may
// call the methods. The zero Recovery is ready for use.
type Recovery struct {
	config RecoveryConfig

	mu     sync.Mutex
	hazard hazard
}

// NewRecovery returns an estimate without history.
func NewRecovery(cfg RecoveryConfig) (*Recovery, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("recovery: %w", err)
	}
	return &Recovery{config: cfg.withDefaults()}, nil
}

// Gap returns the time from elapsed until the next probe, before jitter.
func (r *Recovery) Gap(elapsed time.Duration) time.Duration {
	c := r.config.withDefaults()
	elapsed = max(elapsed, 0)
	plain := c.exponentialGap(elapsed)
	longest := maxGap(plain, c.Backoff.Cap)
	r.mu.Lock()
	g := r.hazard.gap(elapsed.Seconds(), c.Cost.Seconds(), longest.Seconds())
	r.mu.Unlock()
	return min(max(seconds(g), plain/maxGapFactor, 1), longest)
}

// maxGap returns the longest gap that is allowed at a point where the exponential
// schedule has the gap plain.
func maxGap(plain, limit time.Duration) time.Duration {
	if plain > limit/maxGapFactor {
		return limit
	}
	return plain * maxGapFactor
}

// exponentialGap returns the gap of the exponential schedule at the time elapsed.
// When the gaps Base·Factor^k so far add up to t, the next gap is Base +
// (Factor-1)·t.
func (c RecoveryConfig) exponentialGap(elapsed time.Duration) time.Duration {
	return min(seconds(c.Backoff.Base.Seconds()+(c.Backoff.Factor-1)*elapsed.Seconds()), c.Backoff.Cap)
}

// Next is [Recovery.Gap] with the schedule's jitter; u is a uniform random
// number. The result does not exceed the longest gap that is allowed.
func (r *Recovery) Next(elapsed time.Duration, u uint64) time.Duration {
	c := r.config.withDefaults()
	longest := maxGap(c.exponentialGap(max(elapsed, 0)), c.Backoff.Cap)
	return backoff.Schedule{Base: r.Gap(elapsed), Cap: longest, Jitter: c.Backoff.Jitter}.Delay(1, 0, u)
}

// Prediction is the expected rest of an outage.
type Prediction struct {
	Median  time.Duration // half of such outages are over after this time
	P90     time.Duration // nine in ten are over after this time
	Outages float64       // number of past outages that it is based on, older ones counted less; 0 means none
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

// Observe counts an outage that is over: the call at lastFailure failed, the
// one at firstSuccess succeeded. It ignores an outage whose firstSuccess is not
// after its lastFailure.
func (r *Recovery) Observe(lastFailure, firstSuccess time.Duration) {
	lastFailure = max(lastFailure, 0)
	if firstSuccess <= lastFailure {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hazard.observe(lastFailure.Seconds(), firstSuccess.Seconds())
}
