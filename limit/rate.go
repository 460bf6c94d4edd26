package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// RateConfig says how often something may happen.
type RateConfig struct {
	Rate    Frequency     // events per span of time
	Burst   int           // events that may come at once after a pause; 0 means 1
	MaxWait time.Duration // no caller waits longer; 0 means none waits
}

// maxRefill bounds how long an empty burst takes to fill up, so that times in
// ticks stay inside an int64.
const maxRefill = 1 << 61

// Validate reports everything that is wrong with the configuration, each
// problem with its field's name.
func (c RateConfig) Validate() error {
	var errs []error
	err := c.Rate.Validate()
	if err != nil {
		errs = append(errs, err)
	}
	switch {
	case c.Burst < 0:
		errs = append(errs, fmt.Errorf("burst: %d is negative", c.Burst))
	case err == nil && int64(c.Burst) > maxRefill/newTicks(c.Rate).step:
		errs = append(errs, fmt.Errorf("burst: %d at %v takes more than 36 years to fill up", c.Burst, c.Rate))
	}
	switch {
	case c.MaxWait < 0:
		errs = append(errs, fmt.Errorf("max-wait: %v is negative", c.MaxWait))
	case c.MaxWait > maxPer:
		errs = append(errs, fmt.Errorf("max-wait: %v is above %v", c.MaxWait, maxPer))
	}
	return errors.Join(errs...)
}

// Rate limits how often something happens: in any span t at most burst + rate×t
// events, counted exactly, with no error that grows over time. Events that wait
// keep that pace too; each is rounded up to the next nanosecond, so two of them
// may look one nanosecond too close.
//
// It is the generic cell rate algorithm, a token bucket that keeps one number:
// the time at which the bucket will be full again. Any goroutine may call it.
type Rate struct {
	ticks   ticks
	ahead   int64 // how far full may lie in the future for one more event, in ticks
	maxWait time.Duration
	full    atomic.Int64 // when the burst is whole again, in ticks
}

// NewRate returns a limit whose burst is whole.
func NewRate(cfg RateConfig) (*Rate, error) {
	if err := cfg.Validate(); err != nil {
		return nil, misused("NewRate", err)
	}
	t := newTicks(cfg.Rate)
	burst := int64(cmp.Or(cfg.Burst, 1))
	return &Rate{ticks: t, ahead: (burst - 1) * t.step, maxWait: cfg.MaxWait}, nil
}

// Allow reports whether an event may happen now, and counts it if so.
func (r *Rate) Allow() bool { return r.AllowAt(clock.Now()) }

// AllowAt is [Rate.Allow] at a given time since any fixed origin. Times before
// the origin count as the origin itself.
func (r *Rate) AllowAt(now time.Duration) bool {
	floor, ceil := r.ticks.at(now)
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

// ReserveAt counts an event that happens after the returned wait. If the wait is
// above MaxWait it returns false and counts nothing; the wait then says when it
// would have been. A caller that does not come after all has used its slot up.
func (r *Rate) ReserveAt(now time.Duration) (wait time.Duration, ok bool) {
	wait, _, ok = r.reserve(now, r.maxWait)
	return wait, ok
}

// reserve takes the next slot if it is at most within away. full is what the
// reservation left behind; giveBack wants it.
func (r *Rate) reserve(now, within time.Duration) (wait time.Duration, full int64, ok bool) {
	floor, ceil := r.ticks.at(now)
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

// giveBack returns a slot that was reserved but not used, if it is still the
// last one. With a later reservation behind it the slot stays empty: whoever
// came next would else get the same moment as that later one.
func (r *Rate) giveBack(full int64) { r.full.CompareAndSwap(full, full-r.ticks.step) }

// Wait returns when an event may happen, and counts it. Callers are served in
// the order they came, and at most MaxWait × rate of them wait.
//
// If the slot is further away than MaxWait or the context's deadline, Wait
// returns a [*RateError] at once and counts nothing. If the context is cancelled
// during the wait the slot is given back, unless another caller has reserved
// one after it: that one's slot cannot move, so the cancelled one stays empty.
func (r *Rate) Wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx, "a slot")
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
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		r.giveBack(full)
		return ended(ctx, "a slot")
	}
}

// RateError says that the next slot is too far away to wait for it. It matches
// [ErrRate].
type RateError struct {
	Wait   time.Duration // how far away the next slot was
	Within time.Duration // how long the caller could have waited
}

// Error returns the message.
func (e *RateError) Error() string {
	return fmt.Sprintf("%v: the next slot is %v away and the caller can wait %v", ErrRate, e.Wait, e.Within)
}

// Unwrap returns [ErrRate].
func (e *RateError) Unwrap() error { return ErrRate }
