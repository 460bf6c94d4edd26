package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
)

func Example() {
	b := breaker.Must(breaker.Config{ConsecutiveFailures: 2}, breaker.WithName("payments"))
	charge := func(context.Context) error { return errors.New("connection refused") }

	for range 3 {
		err := breaker.Do(context.Background(), b, charge)
		fmt.Println(err != nil, errors.Is(err, breaker.ErrOpen))
	}
	// Output:
	// true false
	// true false
	// true true
}

func ExampleDo() {
	b := breaker.Must(breaker.Config{WindowCalls: 100})
	err := breaker.Do(context.Background(), b, func(ctx context.Context) error {
		fmt.Println("called")
		return nil
	})
	fmt.Println(err, b.Counts().Calls)
	// Output:
	// called
	// <nil> 1
}

func ExampleBreaker_Allow() {
	b := breaker.Must(breaker.Config{})
	p, err := b.Allow()
	if err != nil {
		fmt.Println(err)
		return
	}
	// … the call …
	p.Done(breaker.Failure)
	fmt.Printf("%+v\n", b.Counts())
	// Output: {Calls:1 Failures:1 Slow:0 ConsecutiveFailures:1}
}

// The methods that take the time as an argument need no clock: forty seconds
// pass here in no time.
func ExampleBreaker_AllowAt() {
	b := breaker.Must(breaker.Config{
		ConsecutiveFailures: 1,
		Open:                backoff.Schedule{Kind: backoff.Exponential, Base: 5 * time.Second, Cap: time.Minute},
	})
	for now := time.Duration(0); now <= 40*time.Second; now += time.Second {
		p, err := b.AllowAt(now)
		if err != nil {
			continue
		}
		fmt.Println("called at", now)
		p.DoneAt(now, breaker.Failure)
	}
	fmt.Println("next in", b.OpenForAt(40*time.Second))
	// Output:
	// called at 0s
	// called at 5s
	// called at 15s
	// called at 35s
	// next in 35s
}

func ExampleOpenError() {
	b := breaker.Must(breaker.Config{
		ConsecutiveFailures: 1,
		Open:                backoff.Schedule{Base: 5 * time.Second},
	}, breaker.WithName("payments"))
	p, _ := b.AllowAt(0)
	p.DoneAt(0, breaker.Failure)

	_, err := b.AllowAt(800 * time.Millisecond)
	fmt.Println(err)
	if open, ok := errors.AsType[*breaker.OpenError](err); ok {
		fmt.Println(open.Name, open.State, open.For)
	}
	// Output:
	// breaker "payments" is open for another 4.2s
	// payments open 4.2s
}

func ExampleWithObserver() {
	b := breaker.Must(
		breaker.Config{ConsecutiveFailures: 1, Open: backoff.Schedule{Base: 5 * time.Second}},
		breaker.WithName("payments"),
		breaker.WithObserver(func(e breaker.Event) {
			fmt.Println(e.At, e.Name, e.From, "->", e.To, e.Cause, e.OpenFor)
		}),
	)
	fmt.Println("at first", b.State()) // a gauge starts with this

	p, _ := b.AllowAt(time.Second)
	p.DoneAt(time.Second, breaker.Failure)
	p, _ = b.AllowAt(6 * time.Second)
	p.DoneAt(7*time.Second, breaker.Success)
	// Output:
	// at first closed
	// 1s payments closed -> open consecutive 5s
	// 6s payments open -> half-open open-elapsed 0s
	// 7s payments half-open -> closed probe-succeeded 0s
}

func ExampleBreaker_Force() {
	b := breaker.Must(breaker.Config{}, breaker.WithName("payments"))
	if err := b.Force(breaker.ForcedOpen); err != nil {
		fmt.Println(err)
	}
	_, err := b.Allow()
	fmt.Println(err)

	b.Reset()
	_, err = b.Allow()
	fmt.Println(b.State(), err)
	// Output:
	// breaker "payments" is forced open until it is reset
	// closed <nil>
}

func ExampleConfig_slowCalls() {
	b := breaker.Must(breaker.Config{WindowCalls: 4, SlowCall: 2 * time.Second, SlowRate: 0.5})
	for _, took := range []time.Duration{1, 1, 3, 3} {
		p, _ := b.AllowAt(0)
		p.DoneAt(took*time.Second, breaker.Success)
	}
	fmt.Println(b.StateAt(3 * time.Second))
	// Output: open
}

func ExampleConfig_Validate() {
	err := breaker.Config{FailureRate: 80, WindowCalls: 10, MinCalls: 20}.Validate()
	fmt.Println(err)
	// Output:
	// min-calls: 20 is more than window-calls 10 can hold
	// failure-rate: 80 is not between 0 and 1
}

func ExampleDefault() {
	c := breaker.Default()
	fmt.Println(c.FailureRate, c.MinCalls, c.Window, c.Open.Base, c.Open.Cap, c.Open.Jitter, c.ProbeTimeout)
	// Output: 0.8 20 10s 5s 1m0s 50% 30s
}

func ExampleProvider() {
	c := breaker.Provider()
	c.Probes = 2 // a preset is a value to start from
	b := breaker.Must(c, breaker.WithName("inference"))
	fmt.Println(b.Name(), b.State(), c.ConsecutiveFailures, c.Open.Base, c.Open.Cap)
	// Output: inference closed 5 1s 1m0s
}

// A seeded source makes the open times the same in every run.
func ExampleWithRand() {
	half := func() uint64 { return 1 << 63 }
	b := breaker.Must(breaker.Config{ConsecutiveFailures: 1}, breaker.WithRand(half))
	p, _ := b.AllowAt(0)
	p.DoneAt(0, breaker.Failure)
	fmt.Println(b.OpenForAt(0))
	// Output: 5s
}
