package health

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/validate"
)

// Target is one of several destinations that can do the same work: an API key,
// a replica, a provider.
type Target struct {
	Name     string // unique in its pool, not empty
	Provider string // targets with the same provider are its keys; empty means a provider of its own
	Tier     int    // calls go to the lowest tier that has a target that is in; other tiers are spares
	Weight   int    // a target of weight 2 gets twice as many concurrent calls as one of weight 1; 0 means 1
}

// MaxTargets is the largest number of targets of a pool: the bits of a word, so
// that choosing among them allocates nothing.
const MaxTargets = 64

// PoolConfig says when a [Pool] stops using a target. It is comparable plain
// data, and its zero value is usable.
type PoolConfig struct {
	Failures int              // this many failures in a row eject a target; 0 means 5
	Eject    backoff.Schedule // the k-th ejection in a row lasts its k-th delay; zero means 1s doubling to 60s, ±50 %

	// Panic is the share of the open targets below which ejections are ignored;
	// a target is open unless its server or breaker closed it. When nearly all
	// targets fail, the fault is more likely on this side, and the few targets
	// left would have to carry the whole load. 0 means to ignore ejections only
	// when no target is left; Envoy's threshold is 0.5.
	Panic float64

	// MaxCool limits how long a Retry-After can close a target; 0 means 1h.
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
	var errs validate.Problems
	validate.NotNegative(&errs, "failures", c.Failures)
	errs.Field("eject", c.Eject.Validate())
	errs.Check(c.Panic >= 0 && c.Panic <= 1, "panic: %v is not between 0 and 1", c.Panic) // false for NaN too
	validate.NotNegative(&errs, "max-cool", c.MaxCool)
	return errors.Join(errs...)
}

// validTargets returns every problem of the targets.
func validTargets(targets []Target) error {
	var errs validate.Problems
	n := len(targets)
	errs.Check(n > 0 && n <= MaxTargets, "targets: %d is not between 1 and %d", n, MaxTargets)
	seen := make(map[string]bool, len(targets))
	for i, t := range targets {
		switch {
		case t.Name == "":
			errs.Add("target %d: name: is empty: give each target a unique name", i)
		case seen[t.Name]:
			errs.Add("target %q: name: is used twice: give each target a unique name", t.Name)
		}
		seen[t.Name] = true
		errs.Check(t.Weight >= 0, "target %q: weight: %d is negative", t.Name, t.Weight)
	}
	return errors.Join(errs...)
}

// PoolOption sets a dependency of a pool that is not plain data.
type PoolOption func(*Pool) error

// WithBreaker makes the pool skip the named target while its breaker rejects
// calls. The pool only reads the breaker's state: the code that makes the call
// must get a permit from the breaker and report to it.
func WithBreaker(name string, b *breaker.Breaker) PoolOption {
	return func(p *Pool) error {
		i, ok := p.names[name]
		switch {
		case !ok:
			return fmt.Errorf("breaker: there is no target %q in the pool", name)
		case b == nil:
			return fmt.Errorf("breaker: target %q: is nil", name)
		}
		p.targets[i].breaker = b
		return nil
	}
}
