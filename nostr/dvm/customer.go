package dvm

import (
	"cmp"
	"time"

	"github.com/tideover/tideover/limit"
)

// maxCustomers is how many customers of one generation are stored.
const maxCustomers = 8192

// answerEvery is the least time between two notifications of a customer about
// overload.
const answerEvery = time.Minute

// customers limits the rate of each customer. It has two generations. A customer
// without a request for a whole generation is dropped; by then its burst would be
// full again.
type customers struct {
	rate     limit.RateConfig
	turn     time.Duration // length of a generation
	turned   time.Time
	now, old map[string]*customer
}

type customer struct {
	rate       *limit.Rate
	blocked    time.Time // no request is accepted before this time
	notifiedAt time.Time // when it was last notified of overload
}

func newCustomers(rate limit.RateConfig) (*customers, error) {
	if _, err := limit.NewRate(rate); err != nil {
		return nil, err
	}
	// The multiplication cannot overflow: NewRate has checked that.
	refill := time.Duration(rate.Burst) * (rate.Rate.Per/time.Duration(rate.Rate.Events) + 1)
	return &customers{rate: rate, turn: max(answerEvery, refill), now: map[string]*customer{}}, nil
}

// get returns the customer with the key, and adds it if it is missing; nil if
// there are too many.
func (c *customers) get(key string, now time.Time) *customer {
	if now.Sub(c.turned) >= c.turn {
		if now.Sub(c.turned) >= 2*c.turn {
			c.now = nil // there was no request for a whole generation
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
		if err != nil { // can't happen: newCustomers has checked the rate
			return nil
		}
		found = &customer{rate: rate}
	}
	c.now[key] = found
	return found
}

// isBlocked reports whether the customer would be refused. It stores nothing,
// because the signature has not been checked yet.
func (c *customers) isBlocked(key string, now time.Time) bool {
	found := cmp.Or(c.now[key], c.old[key])
	return found != nil && now.Before(found.blocked)
}

// allow counts a request, and reports whether the customer may make it.
func (c *customer) allow(now time.Time) bool {
	wait, ok := c.rate.ReserveAt(time.Duration(now.UnixNano()))
	if !ok {
		c.blocked = now.Add(wait)
	}
	return ok
}

// mayNotify reports whether the customer may be notified of overload, and
// records that it is.
func (c *customer) mayNotify(now time.Time) bool {
	if !c.notifiedAt.IsZero() && now.Sub(c.notifiedAt) < answerEvery {
		return false
	}
	c.notifiedAt = now
	return true
}
