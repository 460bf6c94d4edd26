package advise

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
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
	if p.Kind == backoff.Exponential && p.Cap == p.Base && p.Jitter.Hi <= 1 { // the delay never grows
		p.Schedule = backoff.Schedule{Base: p.Base, Jitter: p.Jitter}
		return p.String()
	}
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
	for _, has := range []bool{
		c.breaker, c.policy.Attempts > 1, c.policy.Budget != limit.BudgetSpec{}, c.policy.Hedge != retry.Hedge{}, c.policy.Kind == backoff.Decorrelated,
		// Retries without an attempt timeout are not simpler: a call that is never answered gets no retry.
		c.policy.AttemptTimeout > 0 || c.policy.Attempts > 1,
	} {
		if has {
			n++
		}
	}
	return n
}

// searchSpace generates candidates that fit the scenarios.
type searchSpace struct {
	latency  time.Duration // mean duration of a call without failures and without queueing
	response time.Duration // mean duration with queueing: it grows as the rate comes close to the capacity
	outage   time.Duration // length of the longest failure that ends; 0 if none ends
	deadline time.Duration // longest wait of a caller
	queue    time.Duration // longest mean time in a queue that nothing limits
	load     float64       // calls per second as a share of the capacity; 0 if there is no limit
	errors   float64       // share of the attempts that fail at any time, without a failure that ends
	goals    Goal          // the goals of all cases; only which of them are set matters
	writers  bool
	times    int // factor for the number of runs: more for writers, which call only once each
}

func newSearchSpace(cases []Case, deadline time.Duration) searchSpace {
	f := searchSpace{deadline: deadline, times: 1}
	for _, c := range cases {
		s := c.Scenario
		switch {
		case s.Writers != nil:
			f.writers, f.latency = true, max(f.latency, 4*s.Writers.Hop)
		case s.Group != nil:
			f.writers, f.latency = true, max(f.latency, 4*s.Group.Hop)
		}
		for i := range s.Services {
			v := &s.Services[i]
			f.latency = max(f.latency, v.Latency.Mean)
			// The mean time in a queue with one worker and random arrivals.
			wait := time.Second
			if free := v.MaxRate() - s.Clients.Rate; free > 0 {
				wait = time.Duration(min(1/free, deadline.Seconds()) * float64(time.Second))
			}
			if v.Workers > 0 {
				f.response = max(f.response, v.Latency.Mean+wait)
			}
			if v.Workers > 0 && v.Queue == 0 && !v.Deadlines && v.MaxRate() > s.Clients.Rate {
				f.queue, f.load = max(f.queue, time.Duration(variation(v.Latency)*float64(wait))), max(f.load, s.Clients.Rate/v.MaxRate())
			}
		}
		for _, failure := range s.Failures {
			f.outage = max(f.outage, failure.Until-failure.From)
			if failure.Kind == sim.Errors && failure.Until == 0 {
				f.errors = max(f.errors, failure.Share)
			}
		}
		f.goals.P99 = max(f.goals.P99, c.Goal.P99)
		f.goals.Through = max(f.goals.Through, c.Goal.Through)
		f.goals.Amplification = max(f.goals.Amplification, c.Goal.Amplification)
	}
	f.response = max(f.response, f.latency)
	if f.writers {
		f.times = 50
	}
	return f
}

// variation returns the factor by which the time in a queue differs from that with an
// exponential latency: half of it if all calls take the same time.
func variation(l sim.Latency) float64 {
	switch l.Distribution {
	case sim.Constant:
		return 0.5
	case sim.Lognormal:
		return math.Exp(l.Sigma*l.Sigma) / 2
	default:
		return 1
	}
}

// budget is the library's default retry budget.
var budget = limit.Refund(1, 0.1, 10)

// candidates returns a coarse grid of candidates. Later, search.refine searches
// around the best ones.
func (f searchSpace) candidates() (list []candidate) {
	if f.writers { // writers have no slow and no failed calls
		list = append(list, candidate{policy: f.policy(1, 0, 0)})
		for _, n := range []int{4, 7, 10, 15, 25} {
			for _, base := range []time.Duration{nice(f.latency / 4), nice(f.latency), nice(4 * f.latency)} {
				list = append(list, candidate{policy: f.policy(n, base, 0)})
			}
		}
		return unique(list)
	}
	timeouts := f.timeouts()
	for _, timeout := range timeouts {
		for _, broken := range []bool{false, true} {
			list = append(list, candidate{f.policy(1, 0, timeout), broken})
		}
		for _, base := range f.bases() {
			for _, n := range []int{2, 3, 5, 9} {
				p := f.policy(n, base, timeout)
				list = append(list, candidate{policy: p})
				p.Budget = budget
				list = append(list, candidate{policy: p})
				if n == 3 {
					list = append(list, candidate{p, true})
				}
			}
		}
	}
	if f.goals.Through > 0 {
		list = append(list, f.beforeDeadline()...)
	}
	if f.goals.Amplification > 0 && f.outage > 0 {
		list = append(list, f.afterOutage()...)
	}
	if f.goals.P99 > 0 {
		list = append(list, f.hedged()...)
	}
	return unique(list)
}

// beforeDeadline returns candidates whose last attempt is shortly before the deadline.
func (f searchSpace) beforeDeadline() (list []candidate) {
	timeouts := f.timeouts()
	before := max(f.deadline/30, min(3*f.response, f.deadline/4))
	for _, timeout := range []time.Duration{timeouts[0], timeouts[len(timeouts)/2]} {
		for _, n := range []int{2, 3, 4, 6, 10, 16} {
			p := f.policy(n, nice(f.deadline/time.Duration(n)), timeout)
			p.Schedule = backoff.Schedule{Base: p.Base, Jitter: backoff.Equal}
			list = append(list, candidate{policy: p})
			p.Schedule = backoff.Schedule{Base: ((f.deadline - before) / time.Duration(n-1)).Truncate(10 * time.Millisecond)}
			list = append(list, candidate{policy: p})
		}
	}
	return list
}

// afterOutage returns candidates whose retries come after an outage, and not during it.
func (f searchSpace) afterOutage() (list []candidate) {
	timeouts := f.timeouts()
	for _, base := range []time.Duration{nice(f.outage), nice(f.deadline * 3 / 4)} {
		for _, broken := range []bool{false, true} {
			p := f.policy(3, 0, timeouts[len(timeouts)/2])
			p.Schedule = backoff.Schedule{Base: min(base, f.deadline*9/10), Jitter: backoff.Equal}
			list = append(list, candidate{p, broken})
			p.Budget = limit.Ratio(0.2)
			list = append(list, candidate{p, broken})
		}
	}
	return list
}

// hedged returns candidates with a second attempt beside a slow one.
func (f searchSpace) hedged() (list []candidate) {
	for _, hedge := range []retry.Hedge{{Percentile: 95}, {Percentile: 90, Share: 0.1}, {Percentile: 75, Share: 0.25}} {
		for _, timeout := range f.timeouts() {
			for _, n := range []int{1, 3} {
				p := f.policy(n, nice(f.latency/2), timeout)
				p.Hedge = hedge
				list = append(list, candidate{policy: p})
			}
		}
	}
	return list
}

// timeouts returns the attempt timeouts of the grid, the longest first. 0 means
// that only the deadline ends an attempt.
func (f searchSpace) timeouts() []time.Duration {
	longest := f.longestAttempt()
	if f.load > 0.3 && f.calmTimeout() > longest {
		return append([]time.Duration{0, roundTo(min(f.calmTimeout(), f.deadline*5/6), 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)}, f.shortTimeouts(longest)...)
	}
	return append([]time.Duration{0}, f.shortTimeouts(longest)...)
}

func (f searchSpace) shortTimeouts(longest time.Duration) []time.Duration {
	return spaced(1.8, longest, min(nice(12*f.response), longest), min(nice(40*f.latency), longest), min(nice(3*f.response), longest), min(nice(10*f.latency), longest))
}

// bases returns the base delays of the grid, the longest first.
func (f searchSpace) bases() []time.Duration {
	return spaced(2.2, nice(f.deadline/5), nice(f.outage/8), nice(4*f.response), nice(30*f.latency), nice(5*f.latency), nice(f.latency/2))
}

// spaced returns the durations in descending order, without those that are less than the
// factor below the one before.
func spaced(factor float64, list ...time.Duration) (out []time.Duration) {
	slices.SortFunc(list, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	for _, d := range list {
		if n := len(out); n == 0 || float64(out[n-1]) >= factor*float64(d) {
			out = append(out, d)
		}
	}
	return out
}

// naive returns the policies that people use without a search, and own, the caller's own
// policies. The advice is never worse than any of them. All of them end at the deadline.
func (f searchSpace) naive(own []retry.Policy) (list []candidate) {
	policies := slices.Clone(own)
	for _, text := range []string{"fixed(0s) attempts=1", "fixed(1s) attempts=3", "exponential(1s) jitter=full attempts=5"} {
		policies = append(policies, retry.Must(text).Policy())
	}
	for name := range retry.Presets {
		p, _ := retry.Preset(name)
		policies = append(policies, p)
	}
	for _, p := range policies {
		if p.TotalTimeout == 0 || p.TotalTimeout > f.deadline {
			p.TotalTimeout = f.deadline
		}
		if f.writers {
			p.AttemptTimeout, p.ThrottleBase, p.ServerWait, p.ServerSlack, p.Hedge = 0, 0, 0, 0, retry.Hedge{}
		}
		p.ResetAfter = 0
		if p.Validate() == nil {
			list = append(list, candidate{policy: p})
		}
	}
	return unique(list)
}

// policy returns a policy with full jitter and the deadline as its total timeout.
func (f searchSpace) policy(attempts int, base, timeout time.Duration) retry.Policy {
	p := retry.Policy{Attempts: attempts, AttemptTimeout: timeout, TotalTimeout: f.deadline}
	if attempts > 1 {
		base = max(min(base, f.deadline/2), time.Millisecond)
		p.Schedule = backoff.Schedule{Base: base, Jitter: backoff.Full}
		if longest := min(20*time.Second, f.deadline/2); base < longest {
			p.Kind, p.Cap = backoff.Exponential, longest
		}
	}
	return p
}

// patient returns one attempt that waits until the deadline, without a breaker.
func (f searchSpace) patient() candidate { return candidate{policy: f.policy(1, 0, 0)} }

// longestAttempt is the longest attempt timeout of the grid. A call that is
// never answered must leave time for another attempt.
func (f searchSpace) longestAttempt() time.Duration {
	return max(f.deadline/2, min(4*f.response, f.deadline*3/4))
}

// overloads reports whether the retries of errors that never end leave the service hardly any free
// capacity. Then its queue grows for longer than the runs last, and they show too little of it. A budget
// of which retries that succeed get their tokens back limits none of these.
func (f searchSpace) overloads(c candidate) bool {
	p := &c.policy
	retries := 0.0
	for i, share := 1, f.errors; i < p.Attempts; i, share = i+1, share*f.errors {
		retries += share
	}
	if p.Budget.Ratio > 0 {
		retries = min(retries, p.Budget.Ratio)
	}
	return retries > 0 && f.load*(1+retries) > 0.98
}

// unstable reports whether the retries of the candidate may overload the service on an ordinary day,
// for ever: see calm.
func (f searchSpace) unstable(c candidate) bool { return f.calm(c) < calmEnough }

// calm returns the logarithm of the mean time, in seconds, until the retries of the candidate overload
// the service for ever; at most calmEnough, and 0 if the usual errors are enough for that. Even if few
// calls fail, the queue becomes longer than the attempt timeout by
// chance, and with the retries of the attempts that time out the capacity hardly drains it. The time in a
// queue exceeds n times its mean in about exp(-n) of the time. A budget does not prevent that: its
// tokens are enough for the retries of one long queue.
func (f searchSpace) calm(c candidate) float64 {
	if f.overloads(c) {
		return 0
	}
	p := &c.policy
	if p.Attempts == 1 || p.AttemptTimeout == 0 || f.queue == 0 || float64(min(p.Attempts, int(f.deadline/p.AttemptTimeout)+1))*f.load <= 0.9 {
		return calmEnough
	}
	return min(math.Log(f.queue.Seconds())+p.AttemptTimeout.Seconds()/f.queue.Seconds(), calmEnough)
}

// calmTimeout returns the shortest attempt timeout with which no retries overload the service.
func (f searchSpace) calmTimeout() time.Duration {
	return time.Duration((calmEnough - math.Log(f.queue.Seconds())) * float64(f.queue))
}

var calmEnough = math.Log((30 * 24 * time.Hour).Seconds())

// mostAttempts is the largest number of attempts that the search tries.
const mostAttempts = 30

// mutant returns a candidate that differs from c in one or two settings, at random.
func (f searchSpace) mutant(c candidate, random *rand.Rand) candidate {
	scaled := func(d, least, most time.Duration) time.Duration {
		return min(max(roundTo(time.Duration(float64(d)*math.Exp(random.NormFloat64())), 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10), least), most)
	}
	p := &c.policy
	for range 1 + random.IntN(2) {
		if p.Attempts == 1 && random.IntN(2) == 0 {
			bases := f.bases()
			p.Attempts, p.Schedule = 2, f.policy(2, bases[random.IntN(len(bases))], 0).Schedule
		}
		kind := random.IntN(7)
		if f.writers {
			kind = random.IntN(3)
		}
		switch kind {
		case 0:
			if p.Attempts > 1 {
				p.Attempts = min(max(2, int(math.Round(float64(p.Attempts)*math.Exp(random.NormFloat64()/2)))), mostAttempts)
			}
		case 1:
			if p.Attempts > 1 {
				p.Base = scaled(max(p.Base, time.Millisecond), time.Millisecond, f.deadline)
				if p.Cap > 0 {
					p.Cap = max(p.Cap, p.Base)
				}
			}
		case 2:
			if p.Attempts > 1 {
				base := max(p.Base, time.Millisecond)
				schedules := []backoff.Schedule{
					{Base: base, Jitter: backoff.Equal},
					{Base: base},
					{Kind: backoff.Exponential, Base: base, Cap: max(base, f.deadline/4), Jitter: backoff.Full},
					{Kind: backoff.Exponential, Base: base, Cap: max(base, f.deadline/4), Jitter: backoff.Equal},
				}
				p.Schedule = schedules[random.IntN(len(schedules))]
			}
		case 3: // so that another attempt has a little time
			p.AttemptTimeout = f.deadline * 24 / 25 / time.Duration(2+random.IntN(4))
		case 4:
			if p.AttemptTimeout = scaled(cmp.Or(p.AttemptTimeout, f.longestAttempt()), f.latency, f.deadline); p.AttemptTimeout == f.deadline {
				p.AttemptTimeout = 0
			}
		case 5:
			if budgets := []limit.BudgetSpec{{}, budget, limit.Refund(1, 0.05, 10), limit.Refund(1, 0.2, 10), limit.Refund(1, 0.5, 20), limit.Ratio(0.2), limit.Bucket(3, 0.05), limit.Bucket(3, 0.1)}; p.Attempts > 1 {
				p.Budget = budgets[random.IntN(len(budgets))]
			}
		case 6:
			if f.goals.P99 > 0 && random.IntN(2) == 0 {
				share := []float64{0.05, 0.1, 0.2, 0.4, 1}[random.IntN(5)]
				p.Hedge = retry.Hedge{Percentile: 100 * (1 - min(share, 0.6)), Share: share}
			} else {
				c.breaker = !c.breaker
			}
		}
	}
	return c
}

// The names of the features that the function without can remove.
const (
	retries        = "retries"
	jitter         = "jitter"
	lastAttempt    = "the last attempt"
	theBudget      = "the budget"
	theBreaker     = "the breaker"
	attemptTimeout = "the attempt timeout"
	theHedge       = "the hedge"
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
	take(theHedge, func(c *candidate) { c.policy.Hedge = retry.Hedge{} })
	take(attemptTimeout, func(c *candidate) { c.policy.AttemptTimeout = 0 })
	return names, list
}

// nice rounds d to 1, 2 or 5 times a power of ten, and to at least a
// millisecond.
func nice(d time.Duration) time.Duration { return roundTo(d, 2, 5, 10) }

// roundTo rounds d to a power of ten or to one of the multiples of it, and to at
// least a millisecond.
func roundTo(d time.Duration, multiples ...float64) time.Duration {
	if d < time.Millisecond {
		return time.Millisecond
	}
	power := math.Pow(10, math.Floor(math.Log10(float64(d))))
	best := power
	for _, m := range multiples {
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
