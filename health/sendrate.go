package health

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// The numbers of a [SendRate]. They and the formulas come from the retry mode
// "adaptive" of the AWS SDKs, as implemented in botocore: the cubic in
// retries/throttling.py (beta 0.7, scale constant 0.4), the measured rate in
// retries/adaptive.py (smoothing 0.8, buckets of half a second, at most twice the
// measured rate), the floor and the burst in retries/bucket.py (0.5/s; the larger of
// the rate and one). CUBIC is defined in RFC 9438.
const (
	cubicBeta    = 0.7
	cubicScale   = 0.4
	rateSmooth   = 0.8
	rateBucket   = 0.5 // seconds
	rateFloor    = 0.5 // per second
	rateHeadroom = 2
)

// SendRateConfig configures a [SendRate].
type SendRateConfig struct {
	MaxWait time.Duration // no caller waits longer; 0 means 1m
}

// Validate reports what is wrong with the configuration.
func (c SendRateConfig) Validate() error {
	if c.MaxWait < 0 {
		return fmt.Errorf("max-wait: %v is negative", c.MaxWait)
	}
	return nil
}

// SendRate finds the rate at which a destination may be called, if the
// destination answers "too many requests" but does not state its limit. Until
// the first such answer it limits nothing. Then the rate falls to 0.7 of the
// measured one, rises quickly to near the rate at which the throttling began,
// stays around it, and later rises further: the cubic function of TCP's
// congestion control.
//
// If the limit is known, use [limit.Rate]: it is exact. Differences from
// botocore: a caller reserves its slot on arrival, so a rising rate does not
// shorten waits that have begun; and a caller whose slot is beyond its deadline
// gets an error at once.
//
// Any goroutine may call the methods. Make one with [NewSendRate].
type SendRate struct {
	maxWait time.Duration

	mu         sync.Mutex
	limited    bool    // there was a throttled answer
	rate       float64 // allowed, per second
	tokens     float64 // negative while slots are reserved
	refilledAt time.Duration

	throttledRate float64       // the rate at the last throttled answer
	throttledAt   time.Duration // when that answer came

	measured float64 // calls per second
	count    int     // calls since the bucket began
	bucket   int64   // number of the current half second
	started  bool
}

// NewSendRate returns a rate that limits nothing yet.
func NewSendRate(cfg SendRateConfig) (*SendRate, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("send rate: %w", err)
	}
	return &SendRate{maxWait: cmp.Or(cfg.MaxWait, time.Minute)}, nil
}

// Report counts the answer to a call; throttled means "too many requests".
// Report other failures as false: they are no reason to send less.
func (r *SendRate) Report(throttled bool) { r.ReportAt(clock.Now(), throttled) }

// ReportAt is [SendRate.Report] at the time now, since any fixed origin.
func (r *SendRate) ReportAt(now time.Duration, throttled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measure(now)
	if !r.limited && !throttled {
		return
	}
	if throttled {
		r.throttledRate, r.throttledAt = r.measured, now
		if r.limited {
			r.throttledRate = min(r.measured, r.rate)
		}
	}
	// At the moment of the throttled answer the cubic is beta times the rate
	// before it.
	r.setRate(now, min(cubic(r.throttledRate, (now-r.throttledAt).Seconds()), rateHeadroom*r.measured))
	r.limited = true
}

// cubic returns the allowed rate at since seconds after throttling began at the rate
// most. The curve is concave up to most, flat around it, then convex.
func cubic(most, since float64) float64 {
	x := max(since, 0) - math.Cbrt(most*(1-cubicBeta)/cubicScale)
	return cubicScale*x*x*x + most
}

// measure counts an answer for the measured rate.
func (r *SendRate) measure(now time.Duration) {
	bucket := int64(max(now, 0).Seconds() / rateBucket)
	if !r.started {
		r.started, r.bucket = true, bucket
	}
	r.count++
	if bucket > r.bucket {
		current := float64(r.count) / (float64(bucket-r.bucket) * rateBucket)
		r.measured = current*rateSmooth + r.measured*(1-rateSmooth)
		r.count, r.bucket = 0, bucket
	}
}

// setRate changes the allowed rate, which is at least rateFloor.
func (r *SendRate) setRate(now time.Duration, rate float64) {
	rate = max(rate, rateFloor)
	if r.limited {
		r.refill(now)
		if r.tokens < 0 {
			// Reserved slots keep their times, so the number of tokens owed for
			// them changes with the rate.
			r.tokens *= rate / r.rate
		}
	} else {
		r.tokens, r.refilledAt = 0, now
	}
	r.rate = rate
	r.tokens = min(r.tokens, burst(rate))
}

// burst returns how many calls may be made at once after a pause.
func burst(rate float64) float64 { return max(rate, 1) }

// refill adds the tokens for the time since the last refill.
func (r *SendRate) refill(now time.Duration) {
	if now > r.refilledAt {
		r.tokens = min(r.tokens+(now-r.refilledAt).Seconds()*r.rate, burst(r.rate))
		r.refilledAt = now
	}
}

// ReserveAt reserves a slot: the caller makes its call after the returned wait.
// If the wait is above MaxWait it returns false and reserves nothing.
func (r *SendRate) ReserveAt(now time.Duration) (wait time.Duration, ok bool) {
	return r.reserve(now, r.maxWait)
}

func (r *SendRate) reserve(now, within time.Duration) (wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.limited {
		return 0, true
	}
	r.refill(now)
	if r.tokens < 1 {
		wait = seconds((1 - r.tokens) / r.rate)
	}
	if wait > max(within, 0) {
		return wait, false
	}
	r.tokens--
	return wait, true
}

// returnSlot returns an unused slot. Callers with later slots keep their times, so
// the next new caller gets the same time as the last of them.
func (r *SendRate) returnSlot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limited {
		r.tokens = min(r.tokens+1, burst(r.rate))
	}
}

// Wait blocks until a call may be made. If the wait would exceed MaxWait or the
// context's deadline, it returns a [*limit.RateError] at once. After the call,
// report the answer with [SendRate.Report].
func (r *SendRate) Wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return waitError(ctx, "a slot")
	}
	within := r.maxWait
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline))
	}
	wait, ok := r.reserve(clock.Now(), within)
	switch {
	case !ok:
		return &limit.RateError{Wait: wait, Within: max(within, 0)}
	case wait == 0:
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		r.returnSlot()
		return waitError(ctx, "a slot")
	}
}

// SendRateStats is the state of a [SendRate] at one moment.
type SendRateStats struct {
	Limited  bool    // there was a throttled answer
	Rate     float64 // allowed calls per second; 0 unless Limited
	Measured float64 // answers per second
}

// Stats returns the current state.
func (r *SendRate) Stats() SendRateStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return SendRateStats{Limited: r.limited, Rate: r.rate, Measured: r.measured}
}
