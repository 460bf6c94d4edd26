package health

import (
	"cmp"
	"errors"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/limit"
)

// GateConfig says when a [Gate] closes, how it probes for recovery and how fast
// it opens. It is comparable plain data, and its zero value is usable.
type GateConfig struct {
	Failures     int              // this many failures in a row close the gate; 0 means 5
	Probe        backoff.Schedule // delays between probes; the zero schedule means 1s growing by half to 10s, ±20 %
	ProbeTimeout time.Duration    // a probe that takes longer counts as failed; 0 means 30s
	Release      time.Duration    // after recovery, the waiting callers pass within this time; 0 means 1s
	Queue        int              // how many callers may wait; 0 means 1000
	Aging        time.Duration    // a waiter rises by one priority class per this time; 0 means 10s
}

// maxShut limits how long a server's Retry-After can postpone the next probe.
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
	var errs validate.Problems
	validate.NotNegative(&errs, "failures", c.Failures)
	errs.Field("probe", c.Probe.Validate())
	switch {
	case c.Probe.Kind == backoff.Decorrelated:
		errs.Add("probe: kind: decorrelated is not supported by a gate: use another kind")
	case c.Probe != backoff.Schedule{} && c.Probe.Base == 0:
		errs.Add("probe: base: must be above zero")
	}
	validate.NotNegative(&errs, "probe-timeout", c.ProbeTimeout)
	validate.NotNegative(&errs, "release", c.Release)
	return errors.Join(append(errs, c.queueConfig().Validate())...)
}

// queueConfig returns the configuration of the queue: a limit of one permit,
// which the gate itself holds. The gate releases it to let the most urgent
// waiter pass.
func (c GateConfig) queueConfig() limit.ConcurrencyConfig {
	return limit.ConcurrencyConfig{Max: 1, Queue: c.Queue, Aging: c.Aging}
}

// GateOption sets a dependency of a gate that is not plain data.
type GateOption func(*Gate)

// WithRecovery makes the gate probe when the estimate recommends it, within
// half and twice the step of GateConfig.Probe and never beyond its cap. The
// gate reports each outage to the estimate. The gates of one destination may
// share one estimate.
func WithRecovery(r *Recovery) GateOption { return func(g *Gate) { g.recovery = r } }

// WithRand sets the source of the random numbers for the jitter. The gate calls
// it with its lock held: it need not be safe for concurrent use, and must not
// call the gate. Without this option the gate uses package math/rand/v2.
func WithRand(f func() uint64) GateOption { return func(g *Gate) { g.random = f } }
