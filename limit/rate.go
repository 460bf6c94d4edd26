package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/validate"
)

// RateConfig configures a [Rate].
type RateConfig struct {
	Rate    Frequency     // events per unit of time
	Burst   int           // events that may happen at once after a pause; 0 means 1
	MaxWait time.Duration // no caller waits longer; 0 means that no caller waits
}

// maxRefill limits the time in which an empty burst refills, so that times in
// ticks fit into an int64.
const maxRefill = 1 << 61

// Validate reports everything that is wrong with the configuration, each
// problem with its field's name.
func (c RateConfig) Validate() error {
	err := c.Rate.Validate()
	errs := validate.Problems{err}
	validate.NotNegative(&errs, "burst", c.Burst)
	if err == nil && int64(c.Burst) > maxRefill/newTicks(c.Rate).step {
		errs.Add("burst: %d at %v takes more than 36 years to fill up", c.Burst, c.Rate)
	}
	validate.NotNegative(&errs, "max-wait", c.MaxWait)
	if c.MaxWait > maxPer {
		errs.Add("max-wait: %v is above %v", c.MaxWait, maxPer)
	}
	return errors.Join(errs...)
}

// Rate limits how often something happens: in any interval t at most burst +
// rate×t events, counted exactly, without drift. Events that wait observe it
// too; each is rounded up to the next nanosecond, so two of them may appear one
// nanosecond too close.
//
// It uses the generic cell rate algorithm, a token bucket that stores one
// number: the time at which the bucket will be full again. Any goroutine may
// call it.
type Rate struct {
	ticks   ticks
	ahead   int64 // an event may happen while full is at most this many ticks in the future
	maxWait time.Duration
	full    atomic.Int64 // the time at which the full burst is available again, in ticks
}

// NewRate returns a limit with a full burst.
func NewRate(cfg RateConfig) (*Rate, error) {
	if err := cfg.Validate(); err != nil {
		return nil, constructorError("NewRate", err)
	}
	t := newTicks(cfg.Rate)
	burst := int64(cmp.Or(cfg.Burst, 1))
	return &Rate{ticks: t, ahead: (burst - 1) * t.step, maxWait: cfg.MaxWait}, nil
}

// Allow reports whether an event may happen now, and counts it if so.
func (r *Rate) Allow() bool { return r.AllowAt(clock.Now()) }

// AllowAt is [Rate.Allow] at the time now since any fixed origin. Times before
// the origin count as the origin.
func (r *Rate) AllowAt(now time.Duration) bool {
	floor, ceil := r.ticks.floorCeil(now)
	for {
		full := r.full.Load()
		if full-r.ahead > floor {
			return false
		}
		if r.full.CompareAndSwap(full, max(full, ceil)+r.ticks.step) {
			return true
		}
	}
}

// ReserveAt reserves a slot: the event may happen after the returned wait. If
// that wait is above MaxWait, ReserveAt returns it with false and reserves
// nothing. A reserved slot cannot be returned.
func (r *Rate) ReserveAt(now time.Duration) (wait time.Duration, ok bool) {
	wait, _, ok = r.reserve(now, r.maxWait)
	return wait, ok
}

// reserve reserves the next slot if the wait for it is at most within. full is
// the value of r.full after the reservation, for returnSlot.
func (r *Rate) reserve(now, within time.Duration) (wait time.Duration, full int64, ok bool) {
	floor, ceil := r.ticks.floorCeil(now)
	for {
		full := r.full.Load()
		wait := time.Duration(0)
		if slot := full - r.ahead; slot > floor {
			wait = r.ticks.time(slot) - max(now, 0)
		}
		if wait > max(within, 0) {
			return wait, 0, false
		}
		next := max(full, ceil) + r.ticks.step
		if r.full.CompareAndSwap(full, next) {
			return wait, next, true
		}
	}
}

// returnSlot returns a slot that was reserved but not used, if no later slot is
// reserved. Otherwise the slot stays unused: the next caller would get the time
// of the later slot, which is taken. full is the result of reserve.
func (r *Rate) returnSlot(full int64) { r.full.CompareAndSwap(full, full-r.ticks.step) }

// Wait blocks until an event may happen, and counts it. Callers are served in
// the order of arrival, and at most MaxWait × rate of them wait.
//
// If the slot is further away than MaxWait or the context's deadline, Wait
// returns a [*RateError] at once and counts nothing. If the context is canceled
// during the wait, the slot is returned, unless another caller has reserved a
// later one: then it stays unused.
func (r *Rate) Wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return contextError(ctx, "a slot")
	}
	within := r.maxWait
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline))
	}
	wait, full, ok := r.reserve(clock.Now(), within)
	switch {
	case !ok:
		return &RateError{Wait: wait, Within: max(within, 0)}
	case wait == 0:
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		r.returnSlot(full)
		return contextError(ctx, "a slot")
	}
}

// ErrRate means that the next slot of a rate is further away than the caller may
// wait. The error that matches it is a [*RateError].
var ErrRate = errors.New("limit: rate exceeded")

// RateError is the error of a caller whose next slot is too far away. It
// matches [ErrRate].
type RateError struct {
	Wait   time.Duration // time until the next slot
	Within time.Duration // how long the caller could have waited
}

// Error returns the message.
func (e *RateError) Error() string {
	return fmt.Sprintf("%v: the next slot is %v away and the caller can wait %v", ErrRate, e.Wait, e.Within)
}

// Unwrap returns [ErrRate].
func (e *RateError) Unwrap() error { return ErrRate }
