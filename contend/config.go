package contend

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/retry"
)

// DefaultTimeout ends a proposal with all its attempts and waits when the
// policy does not say.
const DefaultTimeout = 30 * time.Second

// preset is the policy of writers that collide.
const preset = "contention"

// Config is what may be written in a file about a writer. The zero Config is
// the contention preset with a timeout of 30 seconds.
type Config struct {
	Policy retry.Policy // zero means the preset contention; a TotalTimeout of 0 means DefaultTimeout
	Scale  float64      // base of the waits in measured attempts, at least the policy's; 0 means the policy's
}

// maxScale is far beyond what helps, and keeps sums finite.
const maxScale = 1000

// Validate reports everything that is wrong with the config, each problem with
// its field's name.
func (c Config) Validate() error {
	p := c.policy()
	errs := []error{p.Validate(), p.Refuse("a Writer", "reset-after", "hedge")}
	switch {
	case c.Scale == 0:
	case !(c.Scale > 0 && c.Scale <= maxScale): // false for NaN too
		errs = append(errs, fmt.Errorf("scale: %v is not between 0 and %d", c.Scale, maxScale))
	case p.Attempts == retry.Unlimited:
		errs = append(errs, errors.New("scale: needs a limit on attempts"))
	case p.Base == 0:
		errs = append(errs, errors.New("scale: needs a base above zero"))
	case p.Kind == backoff.Decorrelated: // its delays follow each other, and not the base
		errs = append(errs, errors.New("scale: a decorrelated schedule has no use for one"))
	}
	return errors.Join(errs...)
}

// policy returns the policy with its defaults spelled out.
func (c Config) policy() retry.Policy {
	p := c.Policy
	if p == (retry.Policy{}) {
		p, _ = retry.Preset(preset)
	}
	p.TotalTimeout = cmp.Or(p.TotalTimeout, DefaultTimeout)
	return p
}

// For returns the policy for attempts that take so long, as a [Pace] measures
// them; 0 means that none was measured. It is a pure function, for programs that call
// [retry.Decide] instead of a [Writer].
//
// Without Scale it is the policy as it stands. With it, base and cap grow by
// one factor, so that the base is Scale attempts. They never shrink, and never
// grow so far that all attempts, with all waits at their longest, would not fit
// into the total timeout.
func (c Config) For(attempt time.Duration) retry.Policy {
	p := c.policy()
	if c.Scale <= 0 || p.Base <= 0 || attempt <= 0 {
		return p
	}
	want := c.Scale * float64(attempt) / float64(p.Base)
	left := float64(p.TotalTimeout) - float64(attempt)*float64(p.Retries()+1)
	factor := max(min(want, left/float64(longest(p))), 1)
	p.Base, p.Cap = stretch(p.Base, factor), stretch(p.Cap, factor)
	return p
}

// longest returns the sum of the policy's waits, each at its longest. It stops
// counting at the total timeout, beyond which nothing grows.
func longest(p retry.Policy) (sum time.Duration) {
	for k := 1; k <= p.Retries() && sum < p.TotalTimeout; k++ {
		_, hi := p.Bounds(k)
		sum += min(hi, p.TotalTimeout)
	}
	return max(sum, 1)
}

// stretch multiplies a duration, up to the largest one.
func stretch(d time.Duration, factor float64) time.Duration {
	if f := float64(d) * factor; f < math.MaxInt64 {
		return time.Duration(f)
	}
	return math.MaxInt64
}
