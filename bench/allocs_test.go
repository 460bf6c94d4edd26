//go:build !race

// The race detector allocates on its own account, so make test runs this file
// without it.

package bench_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// TestAllocations is not parallel: it counts the allocations of the whole process.
func TestAllocations(t *testing.T) {
	ctx := requestContext(t)
	for _, tt := range []struct {
		name string
		call func() error
		want float64
	}{
		{"Do with a closure", doClosure(ctx, retry.Must(policy)), 0},
		{"Do with a closure behind a breaker", doClosure(ctx, guardedRunner()), 0},
		{"Value", callValue(ctx, retry.Must(policy)), 0},
		{"a loop over Attempts", loopOnce(ctx, retry.Must(policy)), 0},
		{"a breaker with a window of calls", callBreaker(ctx, breaker.Config{WindowCalls: 100}), 0},
		{"a breaker with a window of time", callBreaker(ctx, breaker.Config{}), 0},
		{"Acquire and Release", acquire(ctx), 0},
		{"Allow of a rate", allowRate(), 0},
		{"an adaptive limit", acquireAdaptive(ctx), 0},
		{"Delay", nextDelay(), 0},
		{"Delay of a table", nextCompiledDelay(), 0},
		{"three failures without delay", failThrice(ctx), 0},
		{"giving up", giveUp(ctx), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var err error
			got := testing.AllocsPerRun(1000, func() {
				if e := tt.call(); e != nil {
					err = e
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if got > tt.want {
				t.Errorf("%s: %v allocations, want at most %v", tt.name, got, tt.want)
			}
		})
	}
}

func guardedRunner() *retry.Runner {
	return retry.Must(policy, retry.WithBreaker(breaker.Must(breaker.Config{WindowCalls: 100})))
}

func doClosure(ctx context.Context, r *retry.Runner) func() error {
	in := 1
	return func() error {
		out := 0
		err := r.Do(ctx, func(ctx context.Context) error {
			v, err := opValueCtx(ctx)
			out = v + in
			return err
		})
		sinkInt += out
		return err
	}
}

func callValue(ctx context.Context, r *retry.Runner) func() error {
	in := 1
	return func() error {
		v, err := retry.Value(ctx, r, func(ctx context.Context) (int, error) {
			v, err := opValueCtx(ctx)
			return v + in, err
		})
		sinkInt += v
		return err
	}
}

// loopOnce must not be inlined. If it is, its function literal is copied, and Go 1.26
// does not inline the loop's iterator in the copy: then every variable of the loop
// escapes to the heap.
//
//go:noinline
func loopOnce(ctx context.Context, r *retry.Runner) func() error {
	return func() (err error) {
		v := 0
		for a := range r.Attempts(ctx, &err) {
			v, err = opValueCtx(a.Context())
		}
		sinkInt += v
		return err
	}
}

func callBreaker(ctx context.Context, c breaker.Config) func() error {
	b := breaker.Must(c)
	return func() error { return breaker.Do(ctx, b, opCtx) }
}

func acquire(ctx context.Context) func() error {
	c := must(limit.NewConcurrency(limit.ConcurrencyConfig{Max: 100}))
	return func() error {
		err := c.Acquire(ctx)
		c.Release()
		return err
	}
}

func allowRate() func() error {
	r := must(limit.NewRate(limit.RateConfig{Rate: must(limit.ParseRate("1/s")), Burst: 1 << 20}))
	return func() error {
		if !r.Allow() {
			return errTransient
		}
		return nil
	}
}

func acquireAdaptive(ctx context.Context) func() error {
	a := must(limit.NewAdaptive(limit.AdaptiveConfig{Max: 100}))
	return func() error {
		t, err := a.Acquire(ctx)
		t.Done(limit.Answered)
		return err
	}
}

func nextDelay() func() error {
	s := must(retry.Parse(policy)).Schedule
	sum := s.Base
	return func() error {
		sum += backoff.Schedule.Delay(s, 3, 0, rand.Uint64())
		return nil
	}
}

func nextCompiledDelay() func() error {
	t := must(retry.Parse(policy)).Schedule.Compile()
	sum := t.Schedule().Base
	return func() error {
		sum += t.Delay(3, 0, rand.Uint64())
		return nil
	}
}

func failThrice(ctx context.Context) func() error {
	r, f := retry.Must("fixed(0s) attempts=4"), new(flaky)
	return func() error { return r.Do(ctx, f.callCtx) }
}

func giveUp(ctx context.Context) func() error {
	r := retry.Must("fixed(0s) attempts=4")
	return func() error {
		sinkErr = r.Do(ctx, opFailCtx)
		return nil
	}
}
