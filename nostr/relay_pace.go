package nostr

import (
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/retry"
)

// quarantine is how long a relay that misbehaves is not dialled, and how long a
// refused subscription is not sent again.
const quarantine = 5 * time.Minute

// A link ends when the relay sends, within a minute, more than maxOffences events
// that it should not have sent, or more than maxGarbage invalid messages. Bad events
// cost work, most of all a forged signature. Invalid messages cost less, and some are
// only late, such as an event of a subscription that has just ended.
const (
	maxOffences    = 100
	maxGarbage     = 1000
	offencesWithin = time.Minute
)

// pace computes the waits between retries that never give up.
type pace struct {
	policy retry.Policy
	random func() uint64
	state  retry.State
}

// wait returns how long to wait after a failure. well is how long there was no
// failure before.
func (p *pace) wait(well time.Duration, class retry.Class) time.Duration {
	if p.policy.ResetAfter > 0 && well >= p.policy.ResetAfter {
		p.reset()
	}
	p.state.Attempt++
	d := retry.Decide(p.policy, p.state, retry.Outcome{Class: class}, retry.Gates{}, p.random())
	p.state.Prev = d.Prev
	return d.Wait
}

func (p *pace) reset() { p.state = retry.State{} }

// checkPace reports the settings of a policy that a pace cannot use.
func checkPace(name string, p retry.Policy) error {
	errs := validate.Problems{
		p.Validate(),
		p.Refuse("a relay client", "attempt-timeout", "total-timeout", "server-wait", "server-slack", "budget", "hedge"),
	}
	errs.Check(p.Attempts == retry.Unlimited, "attempts: want unlimited: a relay is retried for ever")
	errs.Check(p.Base > 0, "base: want a delay above zero: a relay is never retried without a pause")
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// offences detects more offences than are allowed within offencesWithin.
type offences struct {
	at   []time.Time // a ring of the last times, as many as are allowed
	next int
}

func newOffences(most int) offences { return offences{at: make([]time.Time, most)} }

// add records an offence and reports whether there were too many.
func (o *offences) add(now time.Time) bool {
	oldest := o.at[o.next]
	o.at[o.next] = now
	o.next = (o.next + 1) % len(o.at)
	return !oldest.IsZero() && now.Sub(oldest) < offencesWithin
}
