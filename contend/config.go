package contend

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/retry"
)

// DefaultTimeout is the total timeout of a proposal, with all its attempts and
// waits, if the policy has none.
const DefaultTimeout = 30 * time.Second

// preset is the name of the default policy.
const preset = "contention"

// Config configures a writer. It is plain data. The zero Config is the
// contention preset with a total timeout of 30 seconds.
type Config struct {
	Policy retry.Policy // zero means the preset contention; a TotalTimeout of 0 means DefaultTimeout
	Scale  float64      // base of the waits as a multiple of the measured duration of an attempt, at least the policy's base; 0 means the policy's base
}

// maxScale is far above any useful value, and keeps sums finite.
const maxScale = 1000

// Validate reports everything that is wrong with the config, each problem with
// its field's name.
func (c Config) Validate() error {
	p := c.policy()
	errs := validate.Problems{p.Validate(), p.Refuse("a Writer", "reset-after", "hedge")}
	switch {
	case c.Scale == 0:
	case !(c.Scale > 0 && c.Scale <= maxScale): // false for NaN too
		errs.Add("scale: %v is not between 0 and %d", c.Scale, maxScale)
	case p.Attempts == retry.Unlimited:
		errs.Add("scale: needs a limit on attempts: set attempts in the policy")
	case p.Base == 0:
		errs.Add("scale: needs a base above zero: set the base of the policy")
	case p.Kind == backoff.Decorrelated: // its delays depend on each other, not on the base
		errs.Add("scale: has no effect on a decorrelated schedule: use another kind")
	}
	return errors.Join(errs...)
}

// policy returns the policy with its defaults filled in.
func (c Config) policy() retry.Policy {
	p := c.Policy
	if p == (retry.Policy{}) {
		p, _ = retry.Preset(preset)
	}
	p.TotalTimeout = cmp.Or(p.TotalTimeout, DefaultTimeout)
	return p
}

// For returns the policy for attempts that take this long, as measured by a [Pace]; 0
// means that none was measured. It is a pure function, for programs that call
// [retry.Decide] instead of a [Writer].
//
// Without Scale it returns the policy unchanged. With Scale it multiplies base and
// cap by the same factor, so that the base becomes Scale times the duration of an
// attempt. The factor is at least 1, and small enough that all attempts with their
// longest waits fit into the total timeout.
func (c Config) For(attempt time.Duration) retry.Policy {
	p := c.policy()
	if c.Scale <= 0 || p.Base <= 0 || attempt <= 0 {
		return p
	}
	want := c.Scale * float64(attempt) / float64(p.Base)
	left := float64(p.TotalTimeout) - float64(attempt)*float64(p.Retries()+1)
	factor := max(min(want, left/float64(sumOfLongestWaits(p))), 1)
	p.Base, p.Cap = multiply(p.Base, factor), multiply(p.Cap, factor)
	return p
}

// sumOfLongestWaits returns the sum of the policy's waits, each at its longest. It
// stops adding at the total timeout, because longer waits never happen.
func sumOfLongestWaits(p retry.Policy) (sum time.Duration) {
	for k := 1; k <= p.Retries() && sum < p.TotalTimeout; k++ {
		_, hi := p.Bounds(k)
		sum += min(hi, p.TotalTimeout)
	}
	return max(sum, 1)
}

// multiply multiplies a duration, limited to the largest one.
func multiply(d time.Duration, factor float64) time.Duration {
	if f := float64(d) * factor; f < math.MaxInt64 {
		return time.Duration(f)
	}
	return math.MaxInt64
}
