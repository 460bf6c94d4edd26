package health

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/limit"
)

// GateConfig says when a [Gate] closes, how it looks for recovery and how it
// opens. It is comparable plain data, and its zero value is usable.
type GateConfig struct {
	Failures     int              // so many failures in a row close it; 0 means 5
	Probe        backoff.Schedule // the k-th probe starts its k-th delay after the last; zero means 1s growing by half to 10s, ±20 %
	ProbeTimeout time.Duration    // a probe under way for so long counts as failed; 0 means 30s
	Release      time.Duration    // the waiters are let through over this long; 0 means 1s
	Queue        int              // callers that may wait; 0 means 1000
	Aging        time.Duration    // a waiter rises one class per this long; 0 means 10s
}

// maxShut is the longest that a server's wait keeps a gate from probing.
const maxShut = time.Hour

func (c GateConfig) withDefaults() GateConfig {
	c.Failures = cmp.Or(c.Failures, 5)
	c.Probe = cmp.Or(c.Probe, backoff.Schedule{
		Kind:   backoff.Exponential,
		Base:   time.Second,
		Cap:    10 * time.Second,
		Factor: 1.5,
		Jitter: backoff.PlusMinus(0.2),
	})
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 30*time.Second)
	c.Release = cmp.Or(c.Release, time.Second)
	c.Queue = cmp.Or(c.Queue, 1000)
	return c
}

// Validate reports everything that is wrong with the configuration, each problem
// with its field's name.
func (c GateConfig) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Failures < 0 {
		bad("failures: %d is negative", c.Failures)
	}
	if err := c.Probe.Validate(); err != nil {
		bad("probe: %w", err)
	}
	switch {
	case c.Probe.Kind == backoff.Decorrelated:
		bad("probe: kind: a gate's steps cannot be decorrelated")
	case c.Probe != backoff.Schedule{} && c.Probe.Base == 0:
		bad("probe: base: must be above zero")
	}
	if c.ProbeTimeout < 0 {
		bad("probe-timeout: %v is negative", c.ProbeTimeout)
	}
	if c.Release < 0 {
		bad("release: %v is negative", c.Release)
	}
	if err := c.line().Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// line returns the configuration of the queue: a limit of one permit, which the
// gate holds itself and hands to the most urgent waiter when it lets one through.
func (c GateConfig) line() limit.ConcurrencyConfig {
	return limit.ConcurrencyConfig{Max: 1, Queue: c.Queue, Aging: c.Aging}
}

// GateOption adds to a gate what is not plain data.
type GateOption func(*Gate)

// WithRecovery makes the gate probe when the estimate says so, within half and
// twice the step of GateConfig.Probe and never beyond its cap, and teaches the
// estimate each outage. One estimate serves the gates of one destination.
func WithRecovery(r *Recovery) GateOption { return func(g *Gate) { g.recovery = r } }

// WithRand sets the source of the random numbers for the jitter. It is called
// with the gate's lock held: it need not be safe for use by several goroutines,
// and must not call the gate. Without this option the source is that of package
// math/rand/v2.
func WithRand(f func() uint64) GateOption { return func(g *Gate) { g.random = f } }
