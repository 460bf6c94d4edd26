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

// Config configures a writer. It is plain data. The zero Config makes attempts until the total
// timeout. Its waits grow from half the duration of an attempt to 16 times that duration, with full
// jitter, so that few and many writers, near and distant stores need no other setting.
type Config struct {
	Policy retry.Policy // zero means the default, with a Scale of 0.5 if that is zero too; a TotalTimeout of 0 means DefaultTimeout
	Scale  float64      // base of the waits as a multiple of the measured duration of an attempt, at least the policy's base; 0 means the policy's base
}

// defaultPolicy returns the policy of the zero Config. It has no limit on attempts: with many writers
// the unlucky ones need many.
func defaultPolicy() retry.Policy {
	return retry.Policy{
		Schedule: backoff.Schedule{Kind: backoff.Exponential, Base: time.Millisecond, Cap: 32 * time.Millisecond, Factor: 1.5, Jitter: backoff.Full},
		Attempts: retry.Unlimited,
	}
}

// maxScale is far above any useful value, and keeps sums finite.
const maxScale = 1000

// Validate reports everything that is wrong with the config, each problem with
// its field's name.
func (c Config) Validate() error {
	c = c.filled()
	p := c.Policy
	errs := validate.Problems{p.Validate(), p.Refuse("a Writer", "reset-after", "hedge")}
	switch {
	case c.Scale == 0:
	case !(c.Scale > 0 && c.Scale <= maxScale): // false for NaN too
		errs.Add("scale: %v is not between 0 and %d", c.Scale, maxScale)
	case p.Base == 0:
		errs.Add("scale: needs a base above zero: set the base of the policy")
	case p.Kind == backoff.Decorrelated: // its delays depend on each other, not on the base
		errs.Add("scale: has no effect on a decorrelated schedule: use another kind")
	}
	return errors.Join(errs...)
}

// filled returns the config with its defaults filled in.
func (c Config) filled() Config {
	if c.Policy == (retry.Policy{}) {
		c.Policy, c.Scale = defaultPolicy(), cmp.Or(c.Scale, 0.5)
	}
	c.Policy.TotalTimeout = cmp.Or(c.Policy.TotalTimeout, DefaultTimeout)
	return c
}

// For returns the policy for attempts that take this long, as measured by a [Pace]; 0
// means that none was measured. It is a pure function, for programs that call
// [retry.Decide] instead of a [Writer].
//
// Without Scale it returns the policy unchanged. With Scale it multiplies base and
// cap by the same factor, so that the base becomes Scale times the duration of an
// attempt. The factor is at least 1, and small enough that all attempts with their
// longest waits fit into the total timeout; if attempts are unlimited, so that four
// of the longest waits do.
func (c Config) For(attempt time.Duration) retry.Policy {
	c = c.filled()
	p := c.Policy
	if c.Scale <= 0 || p.Base <= 0 || attempt <= 0 {
		return p
	}
	want := c.Scale * float64(attempt) / float64(p.Base)
	attempts, waits := float64(p.Retries()+1), float64(sumOfLongestWaits(p))
	if p.Attempts == retry.Unlimited {
		attempts, waits = 4, 4*float64(cmp.Or(p.Cap, p.Base))
	}
	left := float64(p.TotalTimeout) - float64(attempt)*attempts
	factor := max(min(want, left/waits), 1)
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
