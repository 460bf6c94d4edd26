package limit

import (
	"cmp"
	"math"
	"sync/atomic"
)

// MinRetries is how many retries a ratio budget allows in flight however few
// calls there are. It is Envoy's default.
const MinRetries = 3

// Budget limits the retries of many calls together, so that retrying cannot
// multiply the load on a destination that fails everything. One Budget is
// shared by all callers of a destination; its methods may be called from any
// goroutine and never block.
type Budget struct {
	spec BudgetSpec

	// In millionths of a token.
	cost, throttled, credit, max, ratio int64

	tokens atomic.Int64 // refund, bucket
	flight atomic.Int64 // ratio: calls in the upper half, retries in the lower
}

// A ratio is kept exactly only if both of its counts change in one step.
const (
	oneRetry int64 = 1
	oneCall  int64 = 1 << 32
)

// NewBudget returns a full budget.
func NewBudget(spec BudgetSpec) (*Budget, error) {
	if err := spec.Validate(); err != nil {
		return nil, misused("NewBudget", err)
	}
	b := &Budget{
		spec:      spec,
		cost:      micros(spec.Cost),
		throttled: micros(cmp.Or(spec.Throttled, spec.Cost)),
		credit:    micros(spec.Credit),
		max:       micros(spec.Max),
		ratio:     micros(spec.Ratio),
	}
	b.tokens.Store(b.max)
	return b, nil
}

// Spec returns what the budget was made from.
func (b *Budget) Spec() BudgetSpec { return b.spec }

// Tokens returns what is left, for metrics: the tokens of a refund or bucket
// budget, the further retries that a ratio budget would grant at this moment,
// +Inf without a budget.
func (b *Budget) Tokens() float64 {
	switch b.spec.Kind {
	case NoBudget:
		return math.Inf(1)
	case RatioBudget:
		f := b.flight.Load()
		return float64(max(0, b.allowed(f)-retriesIn(f)))
	default:
		return float64(b.tokens.Load()) / unit
	}
}

// Begin opens the account of one call. The caller ends it with [Call.End].
func (b *Budget) Begin() Call {
	if b.spec.Kind == RatioBudget {
		b.flight.Add(oneCall)
	}
	return Call{b: b}
}

// take asks for one retry, which costs so much in a refund budget.
func (b *Budget) take(cost int64) bool {
	switch b.spec.Kind {
	case RefundBudget:
		return b.spend(cost)
	case RatioBudget:
		return b.launch()
	case BucketBudget:
		return 2*b.tokens.Load() > b.max
	default:
		return true
	}
}

// giveBack undoes a take.
func (b *Budget) giveBack(cost int64) {
	switch b.spec.Kind {
	case RefundBudget:
		b.add(cost)
	case RatioBudget:
		b.flight.Add(-oneRetry)
	case NoBudget, BucketBudget: // took nothing
	}
}

// spend takes the cost of a retry if it is there.
func (b *Budget) spend(cost int64) bool {
	for {
		t := b.tokens.Load()
		if t < cost {
			return false
		}
		if b.tokens.CompareAndSwap(t, t-cost) {
			return true
		}
	}
}

// launch counts one more retry in flight if the ratio allows it.
func (b *Budget) launch() bool {
	for {
		f := b.flight.Load()
		if retriesIn(f) >= b.allowed(f) {
			return false
		}
		if b.flight.CompareAndSwap(f, f+oneRetry) {
			return true
		}
	}
}

// allowed returns how many retries may be in flight beside the calls in f.
func (b *Budget) allowed(f int64) int64 { return max(MinRetries, f/oneCall*b.ratio/unit) }

func retriesIn(f int64) int64 { return f % oneCall }

// add brings tokens. When the budget is full, as it is while all goes well,
// this is one load: callers on other processors do not fight over the memory.
func (b *Budget) add(n int64) {
	for {
		t := b.tokens.Load()
		if t == b.max || b.tokens.CompareAndSwap(t, min(t+n, b.max)) {
			return
		}
	}
}

// drain takes tokens, as far as there are any.
func (b *Budget) drain(n int64) {
	for {
		t := b.tokens.Load()
		if t == 0 || b.tokens.CompareAndSwap(t, max(t-n, 0)) {
			return
		}
	}
}

// Call is the account of one call with a [Budget]. The order is
//
//	Begin, (Fail, Retry)*, End
//
// with a Fail for every attempt that failed, the last one included. A Call
// belongs to one goroutine at a time and must not be copied after its first
// use. The zero Call has no budget: it grants everything and counts nothing.
//
// Hedges want a budget of their own, whose hedged calls End with false: nearly
// every hedged call succeeds, so a refund would let all of them be hedged.
type Call struct {
	b       *Budget
	retries int32 // granted and not given back
	flying  int32 // of those, not yet failed
	cost    int64 // of the last one
}

// Fail says that an attempt failed.
func (c *Call) Fail() {
	if c.b == nil {
		return
	}
	if c.b.spec.Kind == BucketBudget {
		c.b.drain(unit)
	}
	c.land()
}

// Answer says that an attempt ended with a failure that says nothing about load, such as
// an answer that no retry at the same place would change. It costs nothing. If another
// attempt follows, Retry is asked for it.
func (c *Call) Answer() {
	if c.b != nil {
		c.land()
	}
}

// land ends the retry that is under way.
func (c *Call) land() {
	if c.flying == 0 {
		return
	}
	c.flying--
	if c.b.spec.Kind == RatioBudget {
		c.b.flight.Add(-oneRetry)
	}
}

// Retry asks for one more attempt and takes what it costs. If it returns false
// the budget has been left as it was and the call should end.
func (c *Call) Retry() bool {
	if c.b == nil {
		return true
	}
	return c.retry(c.b.cost)
}

// RetryThrottled is Retry after an attempt that the other side turned away
// because it was one too many; see [BudgetSpec].Throttled.
func (c *Call) RetryThrottled() bool {
	if c.b == nil {
		return true
	}
	return c.retry(c.b.throttled)
}

func (c *Call) retry(cost int64) bool {
	if !c.b.take(cost) {
		return false
	}
	c.cost = cost
	c.retries++
	c.flying++
	return true
}

// Cancel gives back the last granted retry, which never started: the caller
// went away during the wait before it, or a breaker opened.
func (c *Call) Cancel() {
	if c.b == nil || c.flying == 0 {
		return
	}
	c.retries--
	c.flying--
	c.b.giveBack(c.cost)
}

// End closes the account. In a refund budget a success at the first attempt
// brings the credit; a success after retries brings back the cost of the last
// one, the one that helped. In a bucket any success brings the ratio.
//
// A refund budget that is full is only read. A second End does nothing, so it
// may be deferred with false for the ways out that nobody thought of.
func (c *Call) End(succeeded bool) {
	b := c.b
	if b == nil {
		return
	}
	switch {
	case b.spec.Kind == RatioBudget:
		b.flight.Add(-(oneCall + int64(c.flying)*oneRetry))
	case !succeeded:
	case b.spec.Kind == BucketBudget:
		b.add(b.ratio)
	case c.retries == 0:
		b.add(b.credit)
	default:
		b.add(c.cost)
	}
	*c = Call{}
}
