package limit

import (
	"cmp"
	"math"
	"sync/atomic"
)

// MinRetries is the number of retries in flight that a ratio budget always
// allows, however few calls there are. It is Envoy's default.
const MinRetries = 3

// Budget limits the retries of many calls together, so that retries cannot
// multiply the load on a destination that fails every call. All callers of a
// destination share one Budget; its methods may be called from any goroutine
// and never block. The zero Budget allows every retry; see [NewBudget].
type Budget struct {
	*budgetRules

	// Refund and bucket budgets: the tokens that are left, in millionths. Ratio budgets:
	// calls in flight in the upper half, retries in the lower; max is 0 for them.
	state atomic.Int64
}

// budgetRules are the constant part of a budget. Those of [NewBudgets] share it.
type budgetRules struct {
	spec BudgetSpec

	// In millionths of a token.
	cost, throttled, credit, max, ratio int64
}

// A ratio budget keeps the number of calls and of retries in flight in one word, so
// that both change in one atomic step.
const (
	oneRetry int64 = 1
	oneCall  int64 = 1 << 32
)

// NewBudget returns a full budget.
func NewBudget(spec BudgetSpec) (*Budget, error) {
	if err := spec.Validate(); err != nil {
		return nil, constructorError("NewBudget", err)
	}
	b := &struct { // together, so that hot budgets do not share a cache line
		Budget
		rules budgetRules
	}{rules: spec.rules()}
	b.fill(&b.rules)
	return &b.Budget, nil
}

// NewBudgets returns n full budgets with the same specification, each with its own
// tokens. They take 16 bytes each, a seventh of a budget that [NewBudget] makes. But four
// of them share a cache line, so prefer NewBudget for few budgets that many goroutines
// use at the same time.
func NewBudgets(spec BudgetSpec, n int) ([]Budget, error) {
	if err := spec.Validate(); err != nil {
		return nil, constructorError("NewBudgets", err)
	}
	rules, budgets := spec.rules(), make([]Budget, n)
	for i := range budgets {
		budgets[i].fill(&rules)
	}
	return budgets, nil
}

// rules returns the numbers of a valid specification.
func (s BudgetSpec) rules() budgetRules {
	return budgetRules{
		spec:      s,
		cost:      micros(s.Cost),
		throttled: micros(cmp.Or(s.Throttled, s.Cost)),
		credit:    micros(s.Credit),
		max:       micros(s.Max),
		ratio:     micros(s.Ratio),
	}
}

// fill makes an unused budget a full one.
func (b *Budget) fill(r *budgetRules) {
	b.budgetRules = r
	b.state.Store(r.max)
}

// Spec returns the specification from which the budget was made.
func (b *Budget) Spec() BudgetSpec {
	if b.budgetRules == nil {
		return BudgetSpec{}
	}
	return b.spec
}

// Tokens returns the rest of the budget, for metrics: the tokens of a refund or
// bucket budget, the further retries that a ratio budget would grant now, +Inf
// without a budget.
func (b *Budget) Tokens() float64 {
	switch b.Spec().Kind {
	case NoBudget:
		return math.Inf(1)
	case RatioBudget:
		f := b.state.Load()
		return float64(max(0, b.allowed(f)-retriesIn(f)))
	default:
		return float64(b.state.Load()) / unit
	}
}

// Begin starts to account for one call. The caller must end it with [Call.End].
func (b *Budget) Begin() Call {
	if b.budgetRules == nil {
		return Call{}
	}
	if b.spec.Kind == RatioBudget {
		b.state.Add(oneCall)
	}
	return Call{b: b}
}

// grantRetry reports whether the budget grants one retry, and counts it if so.
// cost is the price of the retry in a refund budget.
func (b *Budget) grantRetry(cost int64) bool {
	switch b.spec.Kind {
	case RefundBudget:
		return b.spendTokens(cost)
	case RatioBudget:
		return b.addRetryInFlight()
	case BucketBudget:
		return 2*b.state.Load() > b.max
	default:
		return true
	}
}

// undoGrant reverts a grantRetry.
func (b *Budget) undoGrant(cost int64) {
	switch b.spec.Kind {
	case RefundBudget:
		b.addTokens(cost)
	case RatioBudget:
		b.state.Add(-oneRetry)
	case NoBudget, BucketBudget: // granted without a cost
	}
}

// spendTokens subtracts the cost of a retry if there are enough tokens.
func (b *Budget) spendTokens(cost int64) bool {
	for {
		t := b.state.Load()
		if t < cost {
			return false
		}
		if b.state.CompareAndSwap(t, t-cost) {
			return true
		}
	}
}

// addRetryInFlight counts one more retry in flight if the ratio allows it.
func (b *Budget) addRetryInFlight() bool {
	for {
		f := b.state.Load()
		if retriesIn(f) >= b.allowed(f) {
			return false
		}
		if b.state.CompareAndSwap(f, f+oneRetry) {
			return true
		}
	}
}

// allowed returns how many retries may be in flight, given the calls in flight
// in f.
func (b *Budget) allowed(f int64) int64 { return max(MinRetries, f/oneCall*b.ratio/unit) }

func retriesIn(f int64) int64 { return f % oneCall }

// addTokens adds n millionths of a token. If the budget is full, the normal case,
// this is a single load, without contention among processors.
func (b *Budget) addTokens(n int64) {
	for {
		t := b.state.Load()
		if t == b.max || b.state.CompareAndSwap(t, min(t+n, b.max)) {
			return
		}
	}
}

// removeTokens subtracts n millionths of a token, or all that are left.
func (b *Budget) removeTokens(n int64) {
	for {
		t := b.state.Load()
		if t == 0 || b.state.CompareAndSwap(t, max(t-n, 0)) {
			return
		}
	}
}

// Call accounts for one call with a [Budget]. Call its methods in the order
//
//	Begin, (Fail, Retry)*, End
//
// with a Fail for every failed attempt, the last one included. A Call belongs
// to one goroutine at a time and must not be copied after its first use. The
// zero Call has no budget: it grants everything and counts nothing.
//
// Use a separate budget for hedges and End their calls with false: nearly every
// hedged call succeeds, so with a refund all calls could be hedged.
type Call struct {
	b       *Budget
	retries int32 // retries that were granted and not canceled
	flying  int32 // how many of these are in flight
	cost    int64 // price of the last retry
}

// Fail records that an attempt failed.
func (c *Call) Fail() {
	if c.b == nil {
		return
	}
	if c.b.spec.Kind == BucketBudget {
		c.b.removeTokens(unit)
	}
	c.endRetry()
}

// Answer records a failed attempt that does not show overload, such as a response
// that no retry at the same destination would change. It costs nothing. Before a
// further attempt, call Retry.
func (c *Call) Answer() {
	if c.b != nil {
		c.endRetry()
	}
}

// endRetry counts the retry in flight as over.
func (c *Call) endRetry() {
	if c.flying == 0 {
		return
	}
	c.flying--
	if c.b.spec.Kind == RatioBudget {
		c.b.state.Add(-oneRetry)
	}
}

// Retry reports whether the budget grants one more attempt, and pays for it. If
// it returns false, the budget is unchanged and the call should end.
func (c *Call) Retry() bool {
	if c.b == nil {
		return true
	}
	return c.retry(c.b.cost)
}

// RetryThrottled is Retry after an attempt that the destination rejected
// because of its rate; see [BudgetSpec].Throttled.
func (c *Call) RetryThrottled() bool {
	if c.b == nil {
		return true
	}
	return c.retry(c.b.throttled)
}

// retry is Retry for a retry with this cost, in millionths of a token.
func (c *Call) retry(cost int64) bool {
	if !c.b.grantRetry(cost) {
		return false
	}
	c.cost = cost
	c.retries++
	c.flying++
	return true
}

// Cancel reverts the last granted retry, which never started: the caller gave
// up during the wait before it, or a breaker opened.
func (c *Call) Cancel() {
	if c.b == nil || c.flying == 0 {
		return
	}
	c.retries--
	c.flying--
	c.b.undoGrant(c.cost)
}

// End ends the call. In a refund budget a success at the first attempt adds the
// credit; a success after retries refunds the cost of the last one. In a bucket
// any success adds the ratio.
//
// While a refund or bucket budget is full, a success only reads it, so calls do
// not contend. A second End does nothing, so End(false) may be deferred to cover
// early returns.
func (c *Call) End(succeeded bool) {
	b := c.b
	if b == nil {
		return
	}
	switch {
	case b.spec.Kind == RatioBudget:
		b.state.Add(-(oneCall + int64(c.flying)*oneRetry))
	case !succeeded:
	case b.spec.Kind == BucketBudget:
		b.addTokens(b.ratio)
	case c.retries == 0:
		b.addTokens(b.credit)
	default:
		b.addTokens(c.cost)
	}
	*c = Call{}
}
