package sim

import (
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// caller makes calls under one policy: the clients, or a service that calls
// another. Each process has its own budget, breakers and hedge rule, made when
// they are first needed.
type caller struct {
	Contestant
	needsRandom bool
	targets     []int // the services that attempts go to, in turn

	budgets  []*limit.Budget    // nil without a budget
	breakers []*breaker.Breaker // nil without breakers; for each process one for each target
	hedges   []*retry.HedgeRule // nil without hedges
}

// newCaller returns a caller with the policy of the contestant.
func newCaller(c *Contestant, targets []int, processes int) caller {
	r := caller{Contestant: *c, targets: targets, needsRandom: c.Policy.Random() || c.Delay != nil}
	if c.Policy.Budget.Kind != limit.NoBudget {
		r.budgets = make([]*limit.Budget, processes)
	}
	if c.Breaker != nil {
		r.breakers = make([]*breaker.Breaker, processes*len(targets))
	}
	if c.Policy.Hedge != (retry.Hedge{}) {
		r.hedges = make([]*retry.HedgeRule, processes)
	}
	return r
}

// account starts the budget account of a call.
func (r *caller) account(process uint32) limit.Call {
	if r.budgets == nil {
		return limit.Call{}
	}
	b := r.budgets[process]
	if b == nil {
		b, _ = limit.NewBudget(r.Policy.Budget) // it was validated with the policy
		r.budgets[process] = b
	}
	if r.prepaid {
		first := b.Begin()
		first.End(true)
	}
	return b.Begin()
}

// breakerFor returns the process's breaker for the target.
func (r *caller) breakerFor(process uint32, target int, root stream) *breaker.Breaker {
	i := int(process)*len(r.targets) + target
	b := r.breakers[i]
	if b == nil {
		n := uint64(0)
		own := root.derive(forBreaker, uint64(i))
		b, _ = breaker.New(*r.Breaker, breaker.WithRand(func() uint64 { n++; return own.draw(forBreaker, n) })) // it was validated
		r.breakers[i] = b
	}
	return b
}

// hedgeRule returns the process's rule for hedges.
func (r *caller) hedgeRule(process uint32) *retry.HedgeRule {
	h := r.hedges[process]
	if h == nil {
		h, _ = retry.NewHedgeRule(r.Policy.Hedge) // it was validated with the policy
		r.hedges[process] = h
	}
	return h
}

// decideAfterLoss returns the decision after an attempt that lost to another
// writer's.
func (r *caller) decideAfterLoss(s retry.State, account *limit.Call, own stream) retry.Decision {
	account.Fail()
	u := own.draw(forBackoff, uint64(s.Attempt))
	var o retry.Outcome
	if r.Delay != nil {
		o.Delay = max(r.Delay(s, o, u), 0)
	}
	d := retry.DecideWithin(r.Policy, s, o, 0, account, u)
	if r.chained {
		d.Prev = d.Wait
	}
	return d
}

// shutFor returns how long the breakers of all targets reject calls.
func (r *caller) shutFor(process uint32, now int64, root stream) time.Duration {
	if r.breakers == nil {
		return 0
	}
	least := r.breakerFor(process, 0, root).ShutForAt(time.Duration(now))
	for i := 1; i < len(r.targets); i++ {
		least = min(least, r.breakerFor(process, i, root).ShutForAt(time.Duration(now)))
	}
	return least
}

// chooseTarget returns the target of the next attempt: the one whose turn it
// is, or the next whose breaker allows it. The error is that of the last
// breaker.
func (r *caller) chooseTarget(c *call, now int64, root stream) (target int, permit breaker.Permit, err error) {
	for i := range r.targets {
		at := (int(c.attempts) + i) % len(r.targets)
		if r.breakers == nil {
			return r.targets[at], permit, nil
		}
		if permit, err = r.breakerFor(c.process, at, root).AllowAt(time.Duration(now)); err == nil {
			return r.targets[at], permit, nil
		}
	}
	return 0, permit, err
}
