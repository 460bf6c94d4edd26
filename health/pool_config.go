package health

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
)

// Target is one of several that can do the same work: an API key, a replica, a
// provider.
type Target struct {
	Name     string // unique in its pool, not empty
	Provider string // targets of one provider are its keys; empty means a provider of its own
	Tier     int    // the lowest tier with a target that is in is used; the others stand by
	Weight   int    // a target of weight 2 is given twice the calls at once; 0 means 1
}

// MaxTargets is how many targets a pool may have: as many as a word has bits, so
// that choosing among them allocates nothing.
const MaxTargets = 64

// PoolConfig says when a [Pool] takes a target out. It is comparable plain data,
// and its zero value is usable.
type PoolConfig struct {
	Failures int              // so many failures in a row eject a target; 0 means 5
	Eject    backoff.Schedule // the k-th ejection in a row lasts its k-th delay; zero means 1s doubling to 60s, ±50 %

	// Panic is the share of the targets below which ejections are ignored, of
	// those that no server and no breaker has closed. When nearly everything
	// fails, the fault is more likely on this side than on all of theirs, and
	// what is left would have to bear the load of all. 0 means only when none is
	// left; Envoy's threshold is 0.5.
	Panic float64

	// MaxCool bounds how long a server can close a target; 0 means 1h.
	MaxCool time.Duration
}

func (c PoolConfig) withDefaults() PoolConfig {
	c.Failures = cmp.Or(c.Failures, 5)
	c.MaxCool = cmp.Or(c.MaxCool, time.Hour)
	c.Eject = cmp.Or(c.Eject, backoff.Schedule{
		Kind:   backoff.Exponential,
		Base:   time.Second,
		Cap:    time.Minute,
		Jitter: backoff.PlusMinus(0.5),
	})
	return c
}

// Validate reports everything that is wrong with the configuration, each problem
// with its field's name.
func (c PoolConfig) Validate() error {
	var errs []error
	if c.Failures < 0 {
		errs = append(errs, fmt.Errorf("failures: %d is negative", c.Failures))
	}
	if err := c.Eject.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("eject: %w", err))
	}
	if !(c.Panic >= 0 && c.Panic <= 1) { // true for NaN too
		errs = append(errs, fmt.Errorf("panic: %v is not between 0 and 1", c.Panic))
	}
	if c.MaxCool < 0 {
		errs = append(errs, fmt.Errorf("max-cool: %v is negative", c.MaxCool))
	}
	return errors.Join(errs...)
}

// validTargets reports everything that is wrong with the targets.
func validTargets(targets []Target) error {
	var errs []error
	if n := len(targets); n == 0 || n > MaxTargets {
		errs = append(errs, fmt.Errorf("targets: %d is not between 1 and %d", n, MaxTargets))
	}
	seen := make(map[string]bool, len(targets))
	for i, t := range targets {
		switch {
		case t.Name == "":
			errs = append(errs, fmt.Errorf("target %d: name: is empty", i))
		case seen[t.Name]:
			errs = append(errs, fmt.Errorf("target %q: name: is used twice", t.Name))
		}
		seen[t.Name] = true
		if t.Weight < 0 {
			errs = append(errs, fmt.Errorf("target %q: weight: %d is negative", t.Name, t.Weight))
		}
	}
	return errors.Join(errs...)
}

// PoolOption adds to a pool what is not plain data.
type PoolOption func(*Pool) error

// WithBreaker makes the pool pass over the target with the name while its
// breaker refuses calls. The pool only looks: whoever makes the call asks the
// breaker for a permit and reports to it.
func WithBreaker(name string, b *breaker.Breaker) PoolOption {
	return func(p *Pool) error {
		i, ok := p.names[name]
		switch {
		case !ok:
			return fmt.Errorf("breaker: there is no target %q", name)
		case b == nil:
			return fmt.Errorf("breaker: that of target %q is nil", name)
		}
		p.targets[i].breaker = b
		return nil
	}
}
