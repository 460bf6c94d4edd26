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

// The numbers of a [SendRate]. They, and the formulas, are those of the retry
// mode "adaptive" of the AWS SDKs, read in botocore: the cubic in
// retries/throttling.py (beta 0.7, scale constant 0.4), the measured rate in
// retries/adaptive.py (smoothing 0.8, buckets of half a second, at most twice the
// measured rate), the floor and the burst in retries/bucket.py (0.5/s; the larger
// of the rate and one). CUBIC is RFC 9438's.
const (
	cubicBeta    = 0.7
	cubicScale   = 0.4
	rateSmooth   = 0.8
	rateBucket   = 0.5 // seconds
	rateFloor    = 0.5 // per second
	rateHeadroom = 2
)

// SendRateConfig bounds the waits of a [SendRate].
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

// SendRate finds out how often a destination may be called that answers "too
// many requests" without saying how many are allowed. Until the first such answer
// it limits nothing. Then the rate falls to 0.7 of what was being sent, returns
// quickly to near where the trouble began, stays around there, and after a while
// tries more: the cubic of TCP's congestion control.
//
// Where the limit is known, [limit.Rate] is better: it is exact. What differs
// from botocore: a caller reserves its slot when it comes, so a rate that rises
// does not shorten waits that have begun; and callers whose slot lies beyond
// their deadline are told at once.
//
// Any goroutine may call the methods. Make one with [NewSendRate].
type SendRate struct {
	maxWait time.Duration

	mu     sync.Mutex
	on     bool    // there was a throttled answer
	rate   float64 // allowed, per second
	tokens float64 // below zero: slots that are reserved
	filled time.Duration

	most    float64       // the rate at the last throttled answer
	dropped time.Duration // when that came

	measured float64 // calls per second
	count    int     // since the bucket began
	bucket   int64   // the number of the half second
	started  bool
}

// NewSendRate returns a rate that limits nothing yet.
func NewSendRate(cfg SendRateConfig) (*SendRate, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("send rate: %w", err)
	}
	return &SendRate{maxWait: cmp.Or(cfg.MaxWait, time.Minute)}, nil
}

// Report counts the answer to a call: whether it was "too many requests". Other
// failures are no reason to send less and are reported as false.
func (r *SendRate) Report(throttled bool) { r.ReportAt(clock.Now(), throttled) }

// ReportAt is [SendRate.Report] at the time now, since any fixed origin.
func (r *SendRate) ReportAt(now time.Duration, throttled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measure(now)
	if !r.on && !throttled {
		return
	}
	if throttled {
		r.most, r.dropped = r.measured, now
		if r.on {
			r.most = min(r.measured, r.rate)
		}
	}
	// At the moment of the cut the cubic is beta times what it was cut from.
	r.set(now, min(cubic(r.most, (now-r.dropped).Seconds()), rateHeadroom*r.measured))
	r.on = true
}

// cubic returns the rate so many seconds after it was cut at most: concave up to
// most, flat around it, then convex.
func cubic(most, since float64) float64 {
	x := max(since, 0) - math.Cbrt(most*(1-cubicBeta)/cubicScale)
	return cubicScale*x*x*x + most
}

// measure counts an answer towards the measured rate.
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

// set changes the rate.
func (r *SendRate) set(now time.Duration, rate float64) {
	rate = max(rate, rateFloor)
	if r.on {
		r.fill(now)
		if r.tokens < 0 {
			// Reserved slots keep their times. In tokens of another rate that is
			// another debt.
			r.tokens *= rate / r.rate
		}
	} else {
		r.tokens, r.filled = 0, now
	}
	r.rate = rate
	r.tokens = min(r.tokens, burst(rate))
}

// burst returns how many calls may come at once after a pause.
func burst(rate float64) float64 { return max(rate, 1) }

func (r *SendRate) fill(now time.Duration) {
	if now > r.filled {
		r.tokens = min(r.tokens+(now-r.filled).Seconds()*r.rate, burst(r.rate))
		r.filled = now
	}
}

// ReserveAt counts a call that is sent after the returned wait. If the wait is
// above MaxWait it returns false and counts nothing.
func (r *SendRate) ReserveAt(now time.Duration) (wait time.Duration, ok bool) {
	return r.reserve(now, r.maxWait)
}

func (r *SendRate) reserve(now, within time.Duration) (wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on {
		return 0, true
	}
	r.fill(now)
	if r.tokens < 1 {
		wait = seconds((1 - r.tokens) / r.rate)
	}
	if wait > max(within, 0) {
		return wait, false
	}
	r.tokens--
	return wait, true
}

// giveBack returns a slot that was not used. Those behind it keep their times, so
// the next caller comes at the same time as the last of them.
func (r *SendRate) giveBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on {
		r.tokens = min(r.tokens+1, burst(r.rate))
	}
}

// Wait returns when a call may be sent. If that is further away than MaxWait or
// the context's deadline it returns a [*limit.RateError] at once. Whoever was
// let through reports the answer with [SendRate.Report].
func (r *SendRate) Wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx, "a slot")
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
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		r.giveBack()
		return ended(ctx, "a slot")
	}
}

// SendRateStats is the state of a [SendRate] at one moment.
type SendRateStats struct {
	Limited  bool    // there was a throttled answer
	Rate     float64 // allowed per second; 0 unless it is limited
	Measured float64 // answers per second
}

// Stats returns the current state.
func (r *SendRate) Stats() SendRateStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return SendRateStats{Limited: r.on, Rate: r.rate, Measured: r.measured}
}
