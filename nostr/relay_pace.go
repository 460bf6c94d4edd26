package nostr

import (
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/retry"
)

// Relays that misbehave are left alone for so long; so is a subscription that a
// relay does not want.
const leaveAlone = 5 * time.Minute

// A relay that sends more than so many events it should not have sent in a minute
// is not listened to: each of them costs work, a forged signature the most. Garbage
// costs less, and some of it is only late: an event of a subscription that has just
// ended.
const (
	maxOffences    = 100
	maxGarbage     = 1000
	offencesWithin = time.Minute
)

// pace says how long to wait after a failure of something that is never given up.
type pace struct {
	policy retry.Policy
	random func() uint64
	state  retry.State
}

// wait returns the wait that follows a failure after all was well for so long.
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

// checkPace reports what a policy has that a pace can't honour.
func checkPace(name string, p retry.Policy) error {
	errs := []error{
		p.Validate(),
		p.Refuse("a relay client", "attempt-timeout", "total-timeout", "server-wait", "server-slack", "budget", "hedge"),
	}
	if p.Attempts != retry.Unlimited {
		errs = append(errs, errors.New("attempts: want unlimited; a relay is never given up"))
	}
	if p.Base <= 0 {
		errs = append(errs, errors.New("base: want a delay; a relay is not asked without a pause"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// offences tells when there were too many of them.
type offences struct {
	at   []time.Time // a ring of as many as there may be
	next int
}

func newOffences(most int) offences { return offences{at: make([]time.Time, most)} }

// add notes one and reports whether it is one too many.
func (o *offences) add(now time.Time) bool {
	oldest := o.at[o.next]
	o.at[o.next] = now
	o.next = (o.next + 1) % len(o.at)
	return !oldest.IsZero() && now.Sub(oldest) < offencesWithin
}
