package limit

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

func newBudget(t testing.TB, spec BudgetSpec) *Budget {
	t.Helper()
	b, err := NewBudget(spec)
	if err != nil {
		t.Fatalf("NewBudget(%v): %v", spec, err)
	}
	return b
}

// runCall runs one call whose attempts fail the given number of times before
// they succeed, and returns how many attempts it made: three at most.
func runCall(b *Budget, failures int) (attempts int, ok bool) {
	c := b.Begin()
	for attempts = 1; ; attempts++ {
		if failures < attempts {
			c.End(true)
			return attempts, true
		}
		c.Fail()
		if attempts == 3 || !c.Retry() {
			c.End(false)
			return attempts, false
		}
	}
}

func wantTokens(t *testing.T, b *Budget, want float64) {
	t.Helper()
	if got := b.Tokens(); got != want {
		t.Errorf("%v: Tokens() = %v, want %v", b.Spec(), got, want)
	}
}

func TestRefundBudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		failures []int // of each call, in order
		want     float64
	}{
		{"it starts full", nil, 10},
		{"a success at once leaves a full budget full", []int{0, 0, 0}, 10},
		{"a retry that succeeds is free", []int{1, 1, 1}, 10},
		{"of two retries the one that failed is paid", []int{2}, 9},
		{"retries that all fail are paid", []int{9}, 8},
		{"a success at once brings the credit", []int{9, 0, 0, 0}, 8.3},
		{"credit stops at the ceiling", append([]int{2}, make([]int, 50)...), 10},
		{"nothing is left after ten failed retries", []int{9, 9, 9, 9, 9, 9, 9}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBudget(t, Refund(1, 0.1, 10))
			if got := b.Spec(); got != Refund(1, 0.1, 10) {
				t.Errorf("Spec() = %v, want what it was made from", got)
			}
			for _, n := range tt.failures {
				runCall(b, n)
			}
			wantTokens(t, b, tt.want)
		})
	}
}

func TestRefundBudgetStopsRetriesWhenEverythingFails(t *testing.T) {
	t.Parallel()
	b := newBudget(t, Refund(1, 0.1, 10))
	attempts := 0
	for range 10_000 {
		n, _ := runCall(b, 9)
		attempts += n
	}
	if attempts != 10_010 {
		t.Errorf("10000 calls that fail made %d attempts, want 10010: one each and ten retries", attempts)
	}
}

// At one failure in ten the budget costs next to nothing: 99.87 % of the calls
// succeed, where three unlimited attempts give 99.9 %.
func TestRefundBudgetIsFreeAtTenPercentErrors(t *testing.T) {
	t.Parallel()
	b, r := newBudget(t, Refund(1, 0.1, 10)), rand.New(rand.NewPCG(1, 2))
	const calls = 20_000
	ok := 0
	for range calls {
		failures := 0
		for failures < 3 && r.Float64() < 0.1 {
			failures++
		}
		if _, succeeded := runCall(b, failures); succeeded {
			ok++
		}
	}
	if share := float64(ok) / calls; share < 0.998 {
		t.Errorf("at 10 %% failures %.4f of the calls succeeded, want at least 0.998", share)
	}
}

func TestI1ThrottledRetryCostsLessAndComesBackAsPaid(t *testing.T) {
	t.Parallel()
	b, err := NewBudget(ProviderBudget())
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, tokens float64) {
		t.Helper()
		if got := b.Tokens(); got != tokens {
			t.Errorf("%s: %v tokens, want %v", what, got, tokens)
		}
	}
	failed := b.Begin()
	failed.Fail()
	failed.Retry()
	want("after a retry", 486)
	failed.Fail()
	failed.RetryThrottled()
	want("after a throttled retry", 481)
	failed.Cancel()
	want("a retry that did not start", 486)
	failed.RetryThrottled()
	failed.End(true)
	want("the retry that helped is free", 486)
	plain := b.Begin()
	plain.End(true)
	want("a success at once brings one", 487)
}

func TestRefundBudgetDoesNotDrift(t *testing.T) {
	t.Parallel()
	b := newBudget(t, Refund(1, 0.1, 1e5))
	for range 10_000 {
		c := b.Begin()
		c.Retry()
		c.End(false)
	}
	for range 100_000 - 1 {
		runCall(b, 0)
	}
	wantTokens(t, b, 1e5-0.1)
}

func TestRatioBudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		calls int
		want  int // retries granted
	}{
		{"one call alone may retry", 1, 1},
		{"a few calls have the minimum", 10, MinRetries},
		{"below the next whole retry it rounds down", 19, MinRetries},
		{"many calls have their fraction", 100, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBudget(t, Ratio(0.2))
			calls := make([]Call, tt.calls)
			granted := 0
			for i := range calls {
				calls[i] = b.Begin()
			}
			for i := range calls {
				calls[i].Fail()
				if calls[i].Retry() {
					granted++
				}
			}
			if granted != tt.want {
				t.Errorf("%d calls in flight: %d retries granted, want %d", tt.calls, granted, tt.want)
			}
			for i := range calls {
				calls[i].End(i%2 == 0)
			}
			if f := b.state.Load(); f != 0 {
				t.Errorf("after all calls ended %d calls and %d retries are in flight", f/oneCall, retriesIn(f))
			}
		})
	}
}

func TestRatioBudgetCountsARetryUntilItFails(t *testing.T) {
	t.Parallel()
	b := newBudget(t, Ratio(0.1))
	c := b.Begin()
	for range 100 {
		c.Fail()
		wantTokens(t, b, MinRetries)
		if !c.Retry() {
			t.Fatal("a call alone was refused a retry")
		}
		wantTokens(t, b, MinRetries-1)
	}
	c.End(true)
	wantTokens(t, b, MinRetries)
}

func TestBucketBudgetIsGRPCs(t *testing.T) {
	t.Parallel()
	b := newBudget(t, Bucket(10, 0.5))
	// Ten tokens; retries while above five: after four failures six are left.
	for i, want := range []bool{true, true, true, true, false, false} {
		c := b.Begin()
		c.Fail()
		if got := c.Retry(); got != want {
			t.Errorf("failure %d at %v tokens: Retry() = %v, want %v", i+1, b.Tokens(), got, want)
		}
		c.End(false)
	}
	wantTokens(t, b, 4)
	for range 3 {
		runCall(b, 0)
	}
	wantTokens(t, b, 5.5)
	for range 20 {
		c := b.Begin()
		c.Fail()
		c.End(false)
	}
	wantTokens(t, b, 0)
}

func TestCancelGivesARetryBack(t *testing.T) {
	t.Parallel()
	for _, spec := range []BudgetSpec{Refund(2, 0.1, 10), Ratio(0.1), Bucket(10, 0.1)} {
		b := newBudget(t, spec)
		c := b.Begin()
		before := b.Tokens()
		if !c.Retry() {
			t.Fatalf("%v: a full budget refused a retry", spec)
		}
		c.Cancel()
		wantTokens(t, b, before)
		c.Cancel() // there is nothing left to give back
		wantTokens(t, b, before)
		c.End(false)
	}
}

func TestBudgetsMadeTogetherCountForThemselves(t *testing.T) {
	t.Parallel()
	budgets, err := NewBudgets(Refund(1, 0.1, 10), 3)
	if err != nil || len(budgets) != 3 {
		t.Fatalf("NewBudgets = %d budgets, %v", len(budgets), err)
	}
	runCall(&budgets[1], 9)
	wantTokens(t, &budgets[0], 10)
	wantTokens(t, &budgets[1], 8)
	wantTokens(t, &budgets[2], 10)
	if _, err := NewBudgets(Ratio(2), 3); err == nil || !strings.HasPrefix(err.Error(), "limit.NewBudgets: ") {
		t.Errorf("NewBudgets of a wrong specification: %v", err)
	}
}

func TestASecondEndDoesNothing(t *testing.T) {
	t.Parallel()
	for _, spec := range []BudgetSpec{Refund(1, 0.1, 10), Ratio(0.1), Bucket(10, 0.1)} {
		b := newBudget(t, spec)
		c := b.Begin()
		c.Fail()
		c.Retry()
		c.End(true)
		state := b.state.Load()
		c.End(true)
		if b.state.Load() != state {
			t.Errorf("%v: a second End changed the budget", spec)
		}
	}
}

func TestWithoutABudgetEveryRetryIsGranted(t *testing.T) {
	t.Parallel()
	var zero Call
	none := newBudget(t, BudgetSpec{}).Begin()
	for _, c := range []*Call{&zero, &none} {
		for range 1000 {
			c.Fail()
			if !c.Retry() {
				t.Fatal("a call without a budget was refused a retry")
			}
		}
		c.Cancel()
		c.End(true)
	}
	wantTokens(t, newBudget(t, BudgetSpec{}), math.Inf(1))
}

func TestBudgetsKeepCountUnderConcurrency(t *testing.T) {
	t.Parallel()
	for _, spec := range []BudgetSpec{Refund(1, 0.1, 10), Ratio(0.2), Bucket(10, 0.1)} {
		b := newBudget(t, spec)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 3))
				for range 300 {
					runCall(b, r.IntN(4))
				}
			})
		}
		wg.Wait()
		if got := b.state.Load(); got < 0 || got > b.max { // max is 0 for a ratio budget: none are in flight
			t.Errorf("%v: %d millionths of a token, want 0 to %d", spec, got, b.max)
		}
	}
}

func TestSuccessAtOnceOnAFullRefundBudgetAllocatesNothing(t *testing.T) {
	b := newBudget(t, Refund(1, 0.1, 10))
	if n := testing.AllocsPerRun(100, func() { c := b.Begin(); c.End(true) }); n != 0 {
		t.Errorf("a call allocates %v times, want 0", n)
	}
}

func TestTheZeroBudgetAllowsEveryRetry(t *testing.T) {
	t.Parallel()
	var b Budget
	c := b.Begin()
	c.Fail()
	if !c.Retry() || !c.RetryThrottled() || !math.IsInf(b.Tokens(), 1) || b.Spec() != (BudgetSpec{}) {
		t.Errorf("the zero budget has %v tokens and the specification %v, and must allow every retry", b.Tokens(), b.Spec())
	}
	c.End(false)
}
