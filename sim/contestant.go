package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// Contestant is a policy to compare, with an optional breaker and delay
// function, as a real client has them.
type Contestant struct {
	Name    string
	Policy  retry.Policy
	Breaker *breaker.Config // of each process; nil means none

	// Delay computes the delays instead of the policy's schedule, as
	// [retry.WithSchedule] does; u is a uniform random number. It must be a pure
	// function that several goroutines can call at once. nil means the policy's
	// schedule.
	Delay func(s retry.State, o retry.Outcome, u uint64) time.Duration

	// Prepaid makes the budget work like the token buckets of published simulations:
	// every call adds its credit when it begins, and no retry is refunded.
	Prepaid bool

	// literal makes the caller wait exactly as long as the server's Retry-After,
	// without the random time that the library adds.
	literal bool

	// chained passes the last result of Delay as State.Prev, for published
	// schedules that depend on it.
	chained bool
}

// Validate reports everything that is wrong with the contestant, each problem
// with its field's name.
func (c Contestant) Validate() error {
	errs := validate.Problems{c.Policy.Validate(), c.Policy.Refuse("the simulator", "reset-after")}
	errs.Check(c.Name != "", "name: is empty")
	errs.Check(!c.Prepaid || c.Policy.Budget.Kind != limit.NoBudget, "prepaid: the policy has no budget")
	if c.Breaker != nil {
		errs.Field("breaker", c.Breaker.Validate())
	}
	return errors.Join(errs...)
}

// Check reports every problem of the contestants with the scenario, such as a run
// that would need more than [MaxMemory]. [Run] makes the same check before it starts.
// Check does not validate the scenario itself.
func Check(s Scenario, cs []Contestant) error {
	var p problems
	p.check(len(cs) > 0, "contestants", "the list is empty: add at least one")
	names := map[string]int{}
	for i, c := range cs {
		at := fmt.Sprintf("contestants[%d]", i)
		err := c.Validate()
		p.check(err == nil, at, "%w", err)
		j, twice := names[c.Name]
		p.check(!twice || c.Name == "", at, "name: %q is the name of contestants[%d] already", c.Name, j)
		names[c.Name] = i
		if s.Writers != nil || s.Group != nil {
			c.checkWriter(&p, at)
		}
	}
	if len(p) == 0 && s.Validate() == nil { // the size of an invalid scenario is unknown
		memory(s, cs).check(&p)
	}
	return errors.Join(p...)
}

// checkWriter adds a problem for each setting that has no effect for a writer:
// a writer has neither slow nor failed calls.
func (c Contestant) checkWriter(p *problems, at string) {
	err := c.Policy.Refuse("a writer", "attempt-timeout", "throttle-base", "server-wait", "server-slack", "hedge")
	p.check(err == nil, at, "%w", err)
	p.checkUnused(at+": breaker", c.Breaker != nil, "allowed with services")
}

// caller makes calls under one policy: the clients, or a service that calls
// another. Each process has its own budget, breakers and hedge rule. Breakers and
// hedge rules are made when they are first needed.
type caller struct {
	Contestant
	needsRandom bool
	targets     []int // the services that attempts go to, in turn

	budgets  []limit.Budget     // nil without a budget
	breakers []*breaker.Breaker // nil without breakers; for each process one for each target
	hedges   []*retry.HedgeRule // nil without hedges
}

// newCaller returns a caller with the policy of the contestant.
func newCaller(c *Contestant, targets []int, processes int) caller {
	r := caller{Contestant: *c, targets: targets, needsRandom: c.Policy.Random() || c.Delay != nil}
	if c.Policy.Budget.Kind != limit.NoBudget {
		r.budgets, _ = limit.NewBudgets(c.Policy.Budget, processes) // it was validated with the policy
	}
	if c.Breaker != nil {
		r.breakers = make([]*breaker.Breaker, processes*len(targets))
	}
	if c.Policy.Hedge != (retry.Hedge{}) {
		r.hedges = make([]*retry.HedgeRule, processes)
	}
	return r
}

// account opens the budget account of a new call of the process. Without a
// budget it returns the zero account, which allows every retry.
func (r *caller) account(process uint32) limit.Call {
	if r.budgets == nil {
		return limit.Call{}
	}
	b := &r.budgets[process]
	if r.Prepaid {
		first := b.Begin()
		first.End(true)
	}
	return b.Begin()
}

// breakerFor returns the breaker that the process has for the target.
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

// hedgeRule returns the hedge rule of the process.
func (r *caller) hedgeRule(process uint32) *retry.HedgeRule {
	h := r.hedges[process]
	if h == nil {
		h, _ = retry.NewHedgeRule(r.Policy.Hedge) // it was validated with the policy
		r.hedges[process] = h
	}
	return h
}

// shutFor returns the time until the breaker of at least one target of the call admits
// calls; 0 without breakers.
func (w *serviceModel) shutFor(r *caller, c *call) time.Duration {
	if r.breakers == nil {
		return 0
	}
	now, process := time.Duration(w.queue.now), w.process(c)
	least := r.breakerFor(process, 0, w.root).ShutForAt(now)
	for i := 1; i < len(r.targets); i++ {
		least = min(least, r.breakerFor(process, i, w.root).ShutForAt(now))
	}
	return least
}

// nextTarget returns the target whose turn it is for the next attempt.
func (r *caller) nextTarget(c *call) int {
	if len(r.targets) == 1 {
		return r.targets[0]
	}
	return r.targets[int(c.attempts)%len(r.targets)]
}

// admitAttempt returns the target of the next attempt: the one whose turn it
// is, or the first after it whose breaker admits the attempt. If all breakers
// reject it, the error is that of the last breaker.
func (w *serviceModel) admitAttempt(r *caller, c *call) (target int, permit breaker.Permit, err error) {
	if r.breakers == nil {
		return r.nextTarget(c), permit, nil
	}
	now, process := time.Duration(w.queue.now), w.process(c)
	for i := range r.targets {
		at := (int(c.attempts) + i) % len(r.targets)
		if permit, err = r.breakerFor(process, at, w.root).AllowAt(now); err == nil {
			return r.targets[at], permit, nil
		}
	}
	return 0, permit, err
}
