package breaker

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/backoff"
)

// Off as a FailureRate turns that rule off.
const Off = -1

// Config says when a breaker opens, for how long, and how it closes again. It
// is comparable plain data, and its zero value is [Default].
type Config struct {
	Window      time.Duration // count the calls of the last so long; 0 means 10s, or none with WindowCalls
	WindowCalls int           // count the last so many calls instead; 0 means to use Window

	FailureRate         float64       // open at this share of failed calls, 0.004 for 0.4 %; 0 means 0.8, Off never
	ConsecutiveFailures int           // open at so many failures in a row, however far apart; 0 means never
	SlowCall            time.Duration // a call that takes so long, or longer, is slow; 0 means that none is
	SlowRate            float64       // open at this share of slow calls; 0 means 0.8 with SlowCall
	MinCalls            int           // the rates need so many calls in the window; 0 means 20, or WindowCalls if that is less

	Open           backoff.Schedule // the k-th opening in a row lasts its k-th delay; zero means 5s doubling to 60s, ±50 %
	Probes         int              // how many probes a half-open breaker has under way at once; 0 means 1
	ProbeSuccesses int              // how many of them must succeed for it to close; 0 means 1
	ProbeTimeout   time.Duration    // a probe under way for so long makes room for another; 0 means 30s
}

// Default returns the zero Config spelled out: 80 % failures of at least 20
// calls in 10 s open it for 5 s, growing to 60 s, and one probe closes it.
//
// In simulations of gray failures this brought recovery from 38 s, with a retry
// budget alone, to 9 s. A rate of 80 % tells an outage from the errors that
// retries cope with. The open time varies by half either way, because breakers
// that open together probe together: ±10 % took some fifty periods to spread
// them, ±50 % took two.
func Default() Config { return Config{}.filled() }

// Provider returns the configuration for a remote provider of which a client
// uses several: quicker to open, since another provider can take the call, and
// quicker to look again. It opens at 5 failures in a row, or when fewer than
// half of at least 20 calls in 10 s succeed, for 1 s doubling to 60 s, ±50 %.
func Provider() Config {
	c := Config{
		FailureRate:         0.5000000000000001, // the next number after a half: at exactly half it stays closed
		ConsecutiveFailures: 5,
	}.filled()
	c.Open.Base = time.Second
	return c
}

// filled returns the configuration with every zero replaced by what it means.
func (c Config) filled() Config {
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
	return errors.Join(c.checkWindow(), c.checkRules(), c.checkOpen(), c.checkProbes())
}

func (c Config) checkWindow() error {
	var p problems
	negative(&p, "window", c.Window)
	negative(&p, "window-calls", c.WindowCalls)
	if c.Window > 0 && c.WindowCalls > 0 {
		p.add("window-calls", "%d cannot be used together with window %v", c.WindowCalls, c.Window)
	}
	negative(&p, "min-calls", c.MinCalls)
	if c.WindowCalls > 0 && c.MinCalls > c.WindowCalls {
		p.add("min-calls", "%d is more than window-calls %d can hold", c.MinCalls, c.WindowCalls)
	}
	return errors.Join(p...)
}

func (c Config) checkRules() error {
	var p problems
	if c.FailureRate != Off && !share(c.FailureRate) {
		p.add("failure-rate", "%v is not between 0 and 1", c.FailureRate)
	}
	negative(&p, "consecutive-failures", c.ConsecutiveFailures)
	negative(&p, "slow-call", c.SlowCall)
	switch {
	case !share(c.SlowRate):
		p.add("slow-rate", "%v is not between 0 and 1", c.SlowRate)
	case c.SlowRate > 0 && c.SlowCall == 0:
		p.add("slow-rate", "%v needs slow-call to say which calls are slow", c.SlowRate)
	}
	if c.FailureRate == Off && c.ConsecutiveFailures == 0 && c.SlowCall == 0 {
		p.add("failure-rate", "is off, and no other rule could open the breaker")
	}
	return errors.Join(p...)
}

func (c Config) checkOpen() error {
	var p problems
	switch err := c.Open.Validate().(type) {
	case nil:
	case interface{ Unwrap() []error }:
		for _, e := range err.Unwrap() {
			p.add("open", "%w", e)
		}
	default:
		p.add("open", "%w", err)
	}
	return errors.Join(p...)
}

func (c Config) checkProbes() error {
	var p problems
	negative(&p, "probes", c.Probes)
	negative(&p, "probe-successes", c.ProbeSuccesses)
	negative(&p, "probe-timeout", c.ProbeTimeout)
	return errors.Join(p...)
}

// share reports whether f is a share of a whole. NaN is not.
func share(f float64) bool { return f >= 0 && f <= 1 }

// problems collects what is wrong, field by field.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, fmt.Errorf(field+": "+format, args...))
}

// negative adds a problem if v is below zero.
func negative[T int | time.Duration](p *problems, field string, v T) {
	if v < 0 {
		p.add(field, "%v is negative", v)
	}
}
