package dvm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/nostr"
)

// GateConfig says which requests are accepted.
type GateConfig struct {
	Kinds     []int    // kinds of requests that are served, 5000 to 5999
	Key       string   // our public key, in hex
	Open      bool     // also accept requests that are addressed to no or another provider
	Customers []string // public keys, in hex; empty means all customers

	MaxAge   time.Duration   // older requests are dropped; 0 means 10 minutes
	MaxAhead time.Duration   // requests dated further in the future are dropped; 0 means 2 minutes
	SeenFor  time.Duration   // how long an id is stored; 0 means 15 minutes
	SeenMost int             // how many ids are stored; 0 means 65,536
	Rate     limit.Frequency // highest rate of requests of one customer; zero means 10/min
	Burst    int             // requests of one customer at once; 0 means 5
}

func (c GateConfig) withDefaults() GateConfig {
	c.MaxAge = cmp.Or(c.MaxAge, 10*time.Minute)
	c.MaxAhead = cmp.Or(c.MaxAhead, 2*time.Minute)
	c.SeenFor = cmp.Or(c.SeenFor, 15*time.Minute)
	c.SeenMost = cmp.Or(c.SeenMost, 1<<16)
	c.Rate = cmp.Or(c.Rate, limit.Frequency{Events: 10, Per: time.Minute})
	c.Burst = cmp.Or(c.Burst, 5)
	return c
}

// Validate reports everything that is wrong with the configuration.
func (c GateConfig) Validate() error {
	var errs validate.Problems
	errs.Check(len(c.Kinds) > 0, "kinds: the list is empty: add at least one")
	for _, k := range c.Kinds {
		errs.Check(k >= minKind && k <= maxKind, "kinds: %d is not 5000 to 5999", k)
	}
	_, ok := parseID(c.Key)
	errs.Check(ok, "key: want a public key of 64 hex digits")
	for i, k := range c.Customers {
		_, ok := parseID(k)
		errs.Check(ok, "customers[%d]: want a public key of 64 hex digits", i)
	}
	d := c.withDefaults()
	errs.Check(d.MaxAge >= 0 && d.MaxAhead >= 0 && d.SeenMost >= 0, "max-age, max-ahead, seen-most: one is negative")
	errs.Check(d.SeenFor >= d.MaxAge+d.MaxAhead,
		"seen-for: %v is less than max-age plus max-ahead, so that a job could run twice: raise it", d.SeenFor)
	return errors.Join(append(errs, limit.RateConfig{Rate: d.Rate, Burst: d.Burst}.Validate())...)
}

// Gate decides which requests are accepted. It reads no clock, starts no
// goroutine, uses bounded memory for any input, and makes cheap checks first:
// it checks a signature only if everything else is valid. Any goroutine may use
// it.
type Gate struct {
	cfg GateConfig

	mu        sync.Mutex
	seen      seenSet
	customers *customers
	tally     tally
}

// NewGate returns a gate.
func NewGate(cfg GateConfig) (*Gate, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("dvm.NewGate: %w", err)
	}
	cfg = cfg.withDefaults()
	who, err := newCustomers(limit.RateConfig{Rate: cfg.Rate, Burst: cfg.Burst})
	if err != nil {
		return nil, fmt.Errorf("dvm.NewGate: %w", err)
	}
	return &Gate{cfg: cfg, seen: newSeenSet(cfg.SeenFor, cfg.SeenMost), customers: who}, nil
}

// Check checks an event with a valid shape and id. The gate stores the id of an
// Accepted event; the next Check of the event returns Seen. The caller must then
// call [Gate.Admit].
func (g *Gate) Check(e *nostr.Event, now time.Time) Verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.check(e, now)
	if v != Accepted {
		g.tally[v]++
	}
	return v
}

func (g *Gate) check(e *nostr.Event, now time.Time) Verdict {
	if v := g.checkHeader(e, now); v != Accepted {
		return v
	}
	id, ok := parseID(e.ID)
	switch {
	case !ok:
		return Forged
	case g.seen.has(id, now):
		return Seen
	case len(g.cfg.Customers) > 0 && !slices.Contains(g.cfg.Customers, e.PubKey):
		return Stranger
	case g.customers.isBlocked(e.PubKey, now):
		return Limited
	case g.seen.full():
		return Full
	case e.CheckSignature() != nil:
		return Forged
	}
	g.seen.add(id, now)
	return Accepted
}

// checkHeader makes the checks that need only the event.
func (g *Gate) checkHeader(e *nostr.Event, now time.Time) Verdict {
	created := unix(e.CreatedAt)
	expires, limited := expiration(e)
	switch {
	case !slices.Contains(g.cfg.Kinds, e.Kind):
		return WrongKind
	case e.PubKey == g.cfg.Key:
		return OwnKey
	case !g.cfg.Open && !e.Tags.Has("p", g.cfg.Key):
		return NotOurs
	case now.Sub(created) > g.cfg.MaxAge:
		return Stale
	case created.Sub(now) > g.cfg.MaxAhead:
		return Future
	case limited && !now.Before(expires):
		return Expired
	}
	return Accepted
}

// Admit counts a request of a customer that [Gate.Check] has accepted. It returns
// Accepted, Limited, or Overloaded if the customer must be notified. It is separate
// from Check because requests that an earlier process has answered do not count. Call
// Forget for a request that is neither admitted nor answered, so that it is accepted
// when a relay sends it again.
func (g *Gate) Admit(customer string, now time.Time) Verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.admit(customer, now)
	g.tally[v]++
	return v
}

func (g *Gate) admit(key string, now time.Time) Verdict {
	who := g.customers.get(key, now)
	switch {
	case who == nil:
		return Full
	case who.allow(now):
		return Accepted
	case who.mayNotify(now):
		return Overloaded
	}
	return Limited
}

// Refuse returns the verdict for a request that there is no capacity for:
// Overloaded if the customer must be notified, at most once a minute, otherwise
// Limited.
func (g *Gate) Refuse(customer string, now time.Time) Verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := Limited
	if who := g.customers.get(customer, now); who != nil && who.mayNotify(now) {
		v = Overloaded
	}
	g.tally[v]++
	return v
}

// Forget makes the gate accept the request again, because it was not recorded.
func (g *Gate) Forget(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if parsed, ok := parseID(id); ok {
		g.seen.remove(parsed)
	}
}

// Stats counts the verdicts.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tally.stats()
}
