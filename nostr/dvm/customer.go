package dvm

import (
	"time"

	"github.com/tideover/tideover/limit"
)

// maxCustomers is how many customers of the last minutes are remembered, twice.
const maxCustomers = 8192

// answerEvery is how often a customer is told that there is no room, at most.
const answerEvery = time.Minute

// customers limits how often each of them asks. It has two generations: whoever has
// not come for a whole one is forgotten, and by then has a full burst again.
type customers struct {
	rate     limit.RateConfig
	turn     time.Duration // the length of a generation
	turned   time.Time
	now, old map[string]*customer
}

type customer struct {
	rate    *limit.Rate
	blocked time.Time // nothing is accepted before
	told    time.Time // when it was last told that there is no room
}

func newCustomers(rate limit.RateConfig) (*customers, error) {
	if _, err := limit.NewRate(rate); err != nil {
		return nil, err
	}
	// Multiplied last: NewRate has made sure that this fits.
	refill := time.Duration(rate.Burst) * (rate.Rate.Per/time.Duration(rate.Rate.Events) + 1)
	return &customers{rate: rate, turn: max(answerEvery, refill), now: map[string]*customer{}}, nil
}

// get returns the customer, nil if there are too many.
func (c *customers) get(key string, now time.Time) *customer {
	if now.Sub(c.turned) >= c.turn {
		if now.Sub(c.turned) >= 2*c.turn {
			c.now = nil // nobody has come for long
		}
		c.old, c.now, c.turned = c.now, map[string]*customer{}, now
	}
	found := c.now[key]
	switch {
	case found != nil:
		return found
	case len(c.now) >= maxCustomers:
		return nil
	}
	if found = c.old[key]; found == nil {
		rate, err := limit.NewRate(c.rate)
		if err != nil { // which newCustomers has ruled out
			return nil
		}
		found = &customer{rate: rate}
	}
	c.now[key] = found
	return found
}

// isBlocked reports whether the customer would be refused. It remembers nobody, so
// that it may be asked about keys that nobody has proved to own.
func (c *customers) isBlocked(key string, now time.Time) bool {
	found := c.now[key]
	if found == nil {
		found = c.old[key]
	}
	return found != nil && now.Before(found.blocked)
}

// allow counts a request, if the customer may make one.
func (c *customer) allow(now time.Time) bool {
	wait, ok := c.rate.ReserveAt(time.Duration(now.UnixNano()))
	if !ok {
		c.blocked = now.Add(wait)
	}
	return ok
}

// mayTell reports whether the customer may be told that there is no room, and takes
// it that this happens.
func (c *customer) mayTell(now time.Time) bool {
	if !c.told.IsZero() && now.Sub(c.told) < answerEvery {
		return false
	}
	c.told = now
	return true
}
