package limit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/limit"
)

// How one call uses a budget: Begin, a Fail for every failed attempt, a Retry
// before every further one, End.
func ExampleBudget() {
	budget, err := limit.NewBudget(limit.Refund(1, 0.1, 10))
	if err != nil {
		fmt.Println(err)
		return
	}
	do := func(attempt func(n int) error) {
		call := budget.Begin()
		defer call.End(false) // for a panic; after the other End it does nothing
		for n := 1; n <= 3; n++ {
			if attempt(n) == nil {
				call.End(true)
				return
			}
			call.Fail()
			if n == 3 || !call.Retry() {
				return
			}
		}
	}
	down := errors.New("down")

	do(func(n int) error { return nil })
	fmt.Println("success at once:", budget.Tokens())
	do(func(n int) error { return down })
	fmt.Println("three failures:", budget.Tokens())
	do(func(n int) error {
		if n == 1 {
			return down
		}
		return nil
	})
	fmt.Println("success at the second attempt:", budget.Tokens())
	do(func(n int) error { return nil })
	fmt.Println("success at once:", budget.Tokens())
	// Output:
	// success at once: 10
	// three failures: 8
	// success at the second attempt: 8
	// success at once: 8.1
}

// One budget for each of many destinations.
func ExampleNewBudgets() {
	budgets, err := limit.NewBudgets(limit.Refund(1, 0.1, 10), 1000)
	if err != nil {
		fmt.Println(err)
		return
	}
	call := budgets[7].Begin()
	call.Fail()
	fmt.Println(call.Retry(), budgets[7].Tokens(), budgets[8].Tokens())
	call.End(false)
	// Output: true 9 10
}

// A retry that was granted but never started costs nothing.
func ExampleCall_Cancel() {
	budget, _ := limit.NewBudget(limit.Refund(2, 0.1, 10))
	call := budget.Begin()
	call.Fail()
	fmt.Println(call.Retry(), budget.Tokens())
	call.Cancel() // the caller went away during the wait
	call.End(false)
	fmt.Println(budget.Tokens())
	// Output:
	// true 8
	// 10
}

func ExampleParseBudget() {
	spec, err := limit.ParseBudget("bucket(100,0.10)")
	fmt.Println(spec, err)
	_, err = limit.ParseBudget("refund(20,0.1,10)")
	fmt.Println(err)
	// Output:
	// bucket(100,0.1) <nil>
	// budget "refund(20,0.1,10)": cost: 20 is above max 10: no retry could ever be paid: lower cost or raise max
}

// Envoy's budget: a fifth of the calls in flight may be retries, three always.
func ExampleRatio() {
	budget, _ := limit.NewBudget(limit.Ratio(0.2))
	calls := make([]limit.Call, 20)
	for i := range calls {
		calls[i] = budget.Begin()
	}
	granted := 0
	for i := range calls {
		calls[i].Fail()
		if calls[i].Retry() {
			granted++
		}
	}
	fmt.Println(granted, "of", len(calls))
	// Output: 4 of 20
}

// gRPC's throttling: retries stop while half of the tokens are gone.
func ExampleBucket() {
	budget, _ := limit.NewBudget(limit.Bucket(10, 0.5))
	for range 5 {
		call := budget.Begin()
		call.Fail()
		fmt.Println(budget.Tokens(), call.Retry())
		call.End(false)
	}
	// Output:
	// 9 true
	// 8 true
	// 7 true
	// 6 true
	// 5 false
}

func ExampleParsePriority() {
	p, err := limit.ParsePriority("high")
	fmt.Println(p, err)
	_, err = limit.ParsePriority("urgent")
	fmt.Println(err)
	// Output:
	// high <nil>
	// priority "urgent": want lowest, low, normal, high or highest
}

func ExampleWithPriority() {
	ctx := limit.WithPriority(context.Background(), limit.Low)
	fmt.Println(limit.PriorityFrom(ctx))
	fmt.Println(limit.PriorityFrom(context.Background()))
	// Output:
	// low
	// normal
}

func ExampleConcurrency() {
	calls, err := limit.NewConcurrency(limit.ConcurrencyConfig{Max: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	fmt.Println(calls.Acquire(ctx))
	fmt.Println(calls.Acquire(ctx))
	calls.Release()
	fmt.Println(calls.Acquire(ctx))
	// Output:
	// <nil>
	// limit: no permit free and no room in the queue
	// <nil>
}

// The queue in virtual time, as a simulator drives it.
func ExampleConcurrency_EnqueueAt() {
	calls, _ := limit.NewConcurrency(limit.ConcurrencyConfig{Max: 1, Queue: 2})
	calls.EnqueueAt(0, limit.Normal, 0) // gets the permit
	low, _, _ := calls.EnqueueAt(0, limit.Low, 0)
	normal, _, _ := calls.EnqueueAt(0, limit.Normal, 0)
	high, shed, _ := calls.EnqueueAt(time.Second, limit.High, 0)

	fmt.Println("shed the low one:", shed == low)
	fmt.Println("first the high one:", calls.ReleaseAt(2*time.Second) == high)
	fmt.Println("then the normal one:", calls.ReleaseAt(3*time.Second) == normal)
	// Output:
	// shed the low one: true
	// first the high one: true
	// then the normal one: true
}

func ExampleConcurrency_SetMax() {
	calls, _ := limit.NewConcurrency(limit.ConcurrencyConfig{Max: 1})
	calls.TryAcquire()
	fmt.Println(calls.TryAcquire())
	err := calls.SetMax(2)
	fmt.Println(calls.TryAcquire(), err)
	s := calls.Stats()
	fmt.Println(s.InUse, "of", s.Max)
	// Output:
	// false
	// true <nil>
	// 2 of 2
}

func ExampleAdaptive() {
	calls, err := limit.NewAdaptive(limit.AdaptiveConfig{Min: 2, Max: 200, Queue: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	call := func(ctx context.Context) error {
		token, err := calls.Acquire(ctx)
		if err != nil {
			return err
		}
		result := limit.Answered
		defer func() { token.Done(result) }()
		// Call the destination here; after a timeout or a 503:
		result = limit.Dropped
		return nil
	}
	for range 500 {
		if err := call(context.Background()); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("limit after five hundred timeouts:", calls.Stats().Max)
	// Output: limit after five hundred timeouts: 2
}

// The estimator alone, fed by a destination that answers up to eight calls at
// once in 10 ms and makes the others queue.
func ExampleEstimator() {
	e, _ := limit.NewEstimator(limit.AdaptiveConfig{Max: 100})
	now := time.Duration(0)
	for range 100_000 {
		inflight := e.Limit()
		rtt := 10 * time.Millisecond * time.Duration(max(inflight, 8)) / 8
		now += rtt / time.Duration(inflight)
		e.SampleAt(now, rtt, inflight, false)
	}
	fmt.Println("eight and a small queue:", e.Limit() > 8 && e.Limit() < 13)
	// Output: eight and a small queue: true
}

func ExampleRate() {
	f, err := limit.ParseRate("10/s")
	if err != nil {
		fmt.Println(err)
		return
	}
	rate, err := limit.NewRate(limit.RateConfig{Rate: f, Burst: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, at := range []time.Duration{0, 0, 0, 100 * time.Millisecond} {
		fmt.Println(at, rate.AllowAt(at))
	}
	// Output:
	// 0s true
	// 0s true
	// 0s false
	// 100ms true
}

func ExampleRate_ReserveAt() {
	rate, _ := limit.NewRate(limit.RateConfig{
		Rate:    limit.Frequency{Events: 3, Per: time.Second},
		MaxWait: time.Second,
	})
	for range 5 {
		wait, ok := rate.ReserveAt(0)
		fmt.Println(wait.Round(time.Millisecond), ok)
	}
	// Output:
	// 0s true
	// 333ms true
	// 667ms true
	// 1s true
	// 1.333s false
}

// A wait that would end after the deadline is rejected at once.
func ExampleRate_Wait() {
	rate, _ := limit.NewRate(limit.RateConfig{
		Rate:    limit.Frequency{Events: 1, Per: time.Hour},
		MaxWait: 2 * time.Hour,
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(rate.Wait(ctx))
	err := rate.Wait(ctx)
	var re *limit.RateError
	fmt.Println(errors.Is(err, limit.ErrRate), errors.As(err, &re) && re.Wait > 59*time.Minute)
	// Output:
	// <nil>
	// true true
}

func ExampleParseRate() {
	for _, s := range []string{"50/min", "1/90m", "100/2d", "often"} {
		f, err := limit.ParseRate(s)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(f)
	}
	// Output:
	// 50/min
	// 1/1h30m
	// 100/48h
	// rate "often": want events per s, min, h, d or duration, like 50/min or 1/1.5s
}
