package breaker

import (
	"cmp"
	"errors"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/validate"
)

// Off, as Config.FailureRate, disables that rule.
const Off = -1

// Config says when a breaker opens, for how long, and how it closes again. It
// is comparable plain data, and its zero value is [Default].
type Config struct {
	Window      time.Duration // the rates count the calls of this last period; 0 means 10s, or none if WindowCalls is set
	WindowCalls int           // the rates count this many last calls instead of a period; 0 means to use Window

	FailureRate         float64       // open at this share of failed calls, 0.004 for 0.4 %; 0 means 0.8, Off disables
	ConsecutiveFailures int           // open at this many failures in a row, however far apart; 0 disables
	SlowCall            time.Duration // a call that takes at least this long is slow; 0 means that no call is
	SlowRate            float64       // open at this share of slow calls; 0 means 0.8 with SlowCall
	MinCalls            int           // no rate opens the breaker before this many calls are in the window; 0 means 20, or WindowCalls if that is less

	Open           backoff.Schedule // the k-th opening in a row lasts its k-th delay; zero means 5s doubling to 60s, ±50 %
	Probes         int              // how many probes a half-open breaker allows at once; 0 means 1
	ProbeSuccesses int              // how many probes must succeed to close the breaker; 0 means 1
	ProbeTimeout   time.Duration    // after this time without a report another probe may start; 0 means 30s
}

// Default returns the zero Config with its defaults filled in: 80 % failures of
// at least 20 calls in 10 s open the breaker for 5 s, growing to 60 s, and one
// successful probe closes it.
//
// A simulated service that loses 70 % of its workers for 30 s, at 200 calls per
// second and a capacity of 300, recovers 18 s after that with this breaker, 33 s
// after with a retry budget alone, and never without both; TestTheDefaultBreaker
// of package sim measures this. A rate of 80 % separates an outage from
// errors that retries can handle. The open time varies by ±50 %, because
// breakers that open together would also probe together: ±10 % took about fifty
// periods to spread them, ±50 % took two.
func Default() Config { return Config{}.withDefaults() }

// Provider returns the configuration for one of several remote providers. It
// opens sooner than the default, since another provider can take the call, and
// probes sooner. It opens at 5 failures in a row, or when fewer than half of at
// least 20 calls in 10 s succeed, for 1 s doubling to 60 s, ±50 %.
func Provider() Config {
	c := Config{
		FailureRate:         0.5000000000000001, // the next float64 after 0.5: at exactly half it stays closed
		ConsecutiveFailures: 5,
	}.withDefaults()
	c.Open.Base = time.Second
	return c
}

// withDefaults returns the configuration with every zero replaced by its
// default.
func (c Config) withDefaults() Config {
	if c.WindowCalls == 0 {
		c.Window = cmp.Or(c.Window, 10*time.Second)
	}
	c.FailureRate = cmp.Or(c.FailureRate, 0.8)
	if c.SlowCall != 0 {
		c.SlowRate = cmp.Or(c.SlowRate, 0.8)
	}
	if c.MinCalls == 0 {
		c.MinCalls = min(20, cmp.Or(c.WindowCalls, 20))
	}
	c.Open = cmp.Or(c.Open, backoff.Schedule{
		Kind:   backoff.Exponential,
		Base:   5 * time.Second,
		Cap:    time.Minute,
		Jitter: backoff.PlusMinus(0.5),
	})
	c.Probes = cmp.Or(c.Probes, 1)
	c.ProbeSuccesses = cmp.Or(c.ProbeSuccesses, 1)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 30*time.Second)
	return c
}

// Validate reports everything that is wrong with the configuration, each
// problem with its field's name.
func (c Config) Validate() error {
	var p validate.Problems
	c.checkWindow(&p)
	c.checkRules(&p)
	c.checkOpen(&p)
	validate.NotNegative(&p, "probes", c.Probes)
	validate.NotNegative(&p, "probe-successes", c.ProbeSuccesses)
	validate.NotNegative(&p, "probe-timeout", c.ProbeTimeout)
	return errors.Join(p...)
}

func (c Config) checkWindow(p *validate.Problems) {
	validate.NotNegative(p, "window", c.Window)
	validate.NotNegative(p, "window-calls", c.WindowCalls)
	p.Check(c.Window <= 0 || c.WindowCalls <= 0,
		"window-calls: %d cannot be used together with window %v", c.WindowCalls, c.Window)
	validate.NotNegative(p, "min-calls", c.MinCalls)
	if c.WindowCalls > 0 && c.MinCalls > c.WindowCalls {
		p.Add("min-calls: %d is more than window-calls %d can hold", c.MinCalls, c.WindowCalls)
	}
}

func (c Config) checkRules(p *validate.Problems) {
	p.Check(c.FailureRate == Off || isShare(c.FailureRate), "failure-rate: %v is not between 0 and 1", c.FailureRate)
	validate.NotNegative(p, "consecutive-failures", c.ConsecutiveFailures)
	validate.NotNegative(p, "slow-call", c.SlowCall)
	switch {
	case !isShare(c.SlowRate):
		p.Add("slow-rate: %v is not between 0 and 1", c.SlowRate)
	case c.SlowRate > 0 && c.SlowCall == 0:
		p.Add("slow-rate: %v has no effect without slow-call: set slow-call", c.SlowRate)
	}
	if c.FailureRate == Off && c.ConsecutiveFailures == 0 && c.SlowCall == 0 {
		p.Add("failure-rate: is off and there is no other rule, so the breaker could never open: set consecutive-failures or slow-call")
	}
}

func (c Config) checkOpen(p *validate.Problems) {
	switch err := c.Open.Validate().(type) {
	case nil:
	case interface{ Unwrap() []error }:
		for _, e := range err.Unwrap() {
			p.Add("open: %w", e)
		}
	default:
		p.Add("open: %w", err)
	}
}

// isShare reports whether f is between 0 and 1. NaN is not.
func isShare(f float64) bool { return f >= 0 && f <= 1 }

// openingRule returns the rule that opens a breaker with these counts; empty if
// none does.
func (c *Config) openingRule(n Counts) Cause {
	switch {
	case c.ConsecutiveFailures > 0 && n.ConsecutiveFailures >= c.ConsecutiveFailures:
		return CauseConsecutive
	case n.Calls < c.MinCalls:
		return ""
	case c.FailureRate > 0 && reaches(n.Failures, n.Calls, c.FailureRate):
		return CauseFailureRate
	case c.SlowRate > 0 && reaches(n.Slow, n.Calls, c.SlowRate):
		return CauseSlowRate
	}
	return ""
}

// reaches reports whether part is at least the share rate of all.
//
// It compares the quotient and not the product rate×all. The float64 0.07 is
// not exactly seven hundredths, and times 100 it is more than 7. But the
// quotient 7/100 is rounded in the same way as the literal 0.07, so the two are
// equal, and for fewer than 10^11 calls no other fraction rounds to a rate of
// up to four decimals.
func reaches(part, all int, rate float64) bool {
	return part > 0 && float64(part)/float64(all) >= rate
}
