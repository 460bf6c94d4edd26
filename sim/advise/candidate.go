package advise

import (
	"math"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
)

// candidate is a policy that is compared with others. It is comparable with ==.
type candidate struct {
	policy  retry.Policy
	breaker bool // with the library's default breaker
}

func (c candidate) String() string {
	if c.breaker {
		return c.policy.String() + " and a breaker"
	}
	return c.policy.String()
}

// text returns the text form of the policy, without a cap that none of its delays reaches.
func (c candidate) text() string {
	p := c.policy
	if p.Kind != backoff.Decorrelated { // which needs a cap
		p.Cap = 0
		if _, longest := p.Bounds(p.Attempts - 1); longest > c.policy.Cap {
			p.Cap = c.policy.Cap
		}
	}
	return p.String()
}

func (c candidate) contestant() sim.Contestant {
	s := sim.Contestant{Name: c.String(), Policy: c.policy}
	if c.breaker {
		s.Breaker = new(breaker.Config) // zero means the default
	}
	return s
}

// parts returns how many features the candidate has: fewer are simpler.
func (c candidate) parts() int {
	n := 0
	for _, has := range []bool{c.breaker, c.policy.Attempts > 1, c.policy.Budget != limit.BudgetSpec{}, c.policy.AttemptTimeout > 0, c.policy.Kind == backoff.Decorrelated} {
		if has {
			n++
		}
	}
	return n
}

// searchSpace generates candidates that fit the scenarios.
type searchSpace struct {
	unit     time.Duration // duration of a call without failures
	deadline time.Duration // longest wait of a caller
	writers  bool
	times    int // factor for the number of runs: more for writers, which call only once each
}

func newSearchSpace(cases []Case, deadline time.Duration) searchSpace {
	f := searchSpace{deadline: deadline, times: 1}
	for _, c := range cases {
		s := c.Scenario
		switch {
		case s.Writers != nil:
			f.writers, f.unit = true, max(f.unit, 4*s.Writers.Hop)
		case s.Group != nil:
			f.writers, f.unit = true, max(f.unit, 4*s.Group.Hop)
		}
		for _, v := range s.Services {
			f.unit = max(f.unit, v.Latency.Mean)
		}
	}
	if f.writers {
		f.times = 50
	}
	return f
}

// budget is the library's default retry budget.
var budget = limit.Refund(1, 0.1, 10)

// candidates returns a coarse grid of candidates. Later, search.refine searches
// around the best one.
func (f searchSpace) candidates() (list []candidate) {
	timeouts := []time.Duration{nice(10 * f.unit), nice(40 * f.unit)}
	budgets, breakers := []limit.BudgetSpec{{}, budget}, []bool{false, true}
	attempts, bases := []int{2, 3, 5, 8}, []time.Duration{nice(f.unit / 2), nice(5 * f.unit), nice(30 * f.unit)}
	if f.writers { // writers have no slow and no failed calls
		timeouts, budgets, breakers = timeouts[:1], budgets[:1], breakers[:1]
		timeouts[0] = 0
		attempts, bases = []int{4, 7, 10, 15, 25}, []time.Duration{nice(f.unit / 4), nice(f.unit), nice(4 * f.unit)}
	}
	for _, timeout := range timeouts {
		for _, broken := range breakers {
			list = append(list, candidate{f.policy(1, 0, timeout, limit.BudgetSpec{}), broken})
			for _, n := range attempts {
				for _, base := range bases {
					for _, b := range budgets {
						list = append(list, candidate{f.policy(n, base, timeout, b), broken})
					}
				}
			}
		}
	}
	return unique(list)
}

func (f searchSpace) policy(attempts int, base, timeout time.Duration, b limit.BudgetSpec) retry.Policy {
	p := retry.Policy{Attempts: attempts, AttemptTimeout: min(timeout, f.longestAttempt()), TotalTimeout: f.deadline}
	if attempts > 1 {
		base = max(min(base, f.deadline/4), time.Millisecond)
		p.Schedule = backoff.Schedule{Kind: backoff.Exponential, Base: base, Cap: max(base, min(20*time.Second, f.deadline/2)), Jitter: backoff.Full}
		p.Budget = b
	}
	return p
}

// longestAttempt is the longest attempt timeout of a candidate. A call that is
// never answered must leave time for another attempt.
func (f searchSpace) longestAttempt() time.Duration {
	return max(f.deadline/2, min(4*f.unit, f.deadline*3/4))
}

// The names of the features that the function without can remove.
const (
	retries        = "retries"
	jitter         = "jitter"
	lastAttempt    = "the last attempt"
	theBudget      = "the budget"
	theBreaker     = "the breaker"
	attemptTimeout = "the attempt timeout"
)

// without returns the candidates that lack one of the features of c, and the
// names of those features.
func without(c candidate) (names []string, list []candidate) {
	take := func(name string, do func(*candidate)) {
		n := c
		if do(&n); n != c && n.policy.Validate() == nil {
			names, list = append(names, name), append(list, n)
		}
	}
	if c.policy.Attempts > 1 {
		take(retries, func(c *candidate) {
			c.policy.Attempts, c.policy.Schedule, c.policy.Budget = 1, backoff.Schedule{}, limit.BudgetSpec{}
		})
		take(jitter, func(c *candidate) {
			if c.policy.Kind != backoff.Decorrelated { // which is random by definition
				c.policy.Jitter = backoff.None
			}
		})
		if c.policy.Attempts > 2 {
			take(lastAttempt, func(c *candidate) { c.policy.Attempts-- })
		}
	}
	take(theBudget, func(c *candidate) { c.policy.Budget = limit.BudgetSpec{} })
	take(theBreaker, func(c *candidate) { c.breaker = false })
	take(attemptTimeout, func(c *candidate) { c.policy.AttemptTimeout = 0 })
	return names, list
}

// nice rounds d to 1, 2 or 5 times a power of ten, and to at least a
// millisecond.
func nice(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return time.Millisecond
	}
	power := math.Pow(10, math.Floor(math.Log10(float64(d))))
	best := power
	for _, m := range []float64{2, 5, 10} {
		if math.Abs(math.Log(float64(d)/(m*power))) < math.Abs(math.Log(float64(d)/best)) {
			best = m * power
		}
	}
	return time.Duration(math.Round(best))
}

// unique returns the list without duplicates.
func unique(list []candidate) (out []candidate) {
	seen := map[candidate]bool{}
	for _, c := range list {
		if !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	return out
}
