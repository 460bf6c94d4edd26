package bench_test

import (
	"context"
	"testing"
	"time"

	avast "github.com/avast/retry-go/v5"
	eapache "github.com/eapache/go-resiliency/breaker"
	"github.com/eapache/go-resiliency/deadline"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/sony/gobreaker/v2"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/retry"
)

// BenchmarkBreaker is a call that succeeds behind a closed breaker.
func BenchmarkBreaker(b *testing.B) { compare(b, breakerEntries()) }

// BenchmarkBreakerParallel is BenchmarkBreaker from all processors.
func BenchmarkBreakerParallel(b *testing.B) { compareShared(b, breakerEntries()) }

func breakerEntries() []entry {
	return []entry{
		{"hand-written", func(ctx context.Context) func() error {
			h := new(handBreaker)
			return func() error { return h.do(ctx, opCtx) }
		}},
		{"hand-written-lock", func(ctx context.Context) func() error {
			h := new(handLockedBreaker)
			return func() error { return h.do(ctx, opCtx) }
		}},
		ours("tideover-count", breaker.Config{WindowCalls: 100}),
		ours("tideover-time", breaker.Config{Window: 10 * time.Second}),
		{"tideover-permit-count", func(ctx context.Context) func() error {
			br := breaker.Must(breaker.Config{WindowCalls: 100})
			return func() error {
				p, err := br.Allow()
				if err != nil {
					return err
				}
				err = opCtx(ctx)
				if err != nil {
					p.Done(breaker.Failure)
					return err
				}
				p.Done(breaker.Success)
				return nil
			}
		}},
		{"tideover-runner-count", func(ctx context.Context) func() error {
			r := retry.Must(policy, retry.WithBreaker(breaker.Must(breaker.Config{WindowCalls: 100})))
			return func() error { return r.Do(ctx, opCtx) }
		}},
		{"eapache", func(context.Context) func() error { // counts nothing while calls succeed
			br := eapache.New(50, 5, 10*time.Second)
			return func() error { return br.Run(op) }
		}},
		{"gobreaker", gobreakerEntry(0)},
		{"gobreaker-rolling", gobreakerEntry(time.Second)},
		{"failsafe-permit-count", failsafePermit(failsafeCount)},
		{"failsafe-permit-time", failsafePermit(failsafeRate)},
		{"failsafe-count", failsafeExecutor(failsafeCount)},
		{"failsafe-time", failsafeExecutor(failsafeRate)},
	}
}

func ours(peer string, c breaker.Config) entry {
	return entry{peer, func(ctx context.Context) func() error {
		br := breaker.Must(c)
		return func() error { return breaker.Do(ctx, br, opCtx) }
	}}
}

func gobreakerEntry(bucket time.Duration) func(context.Context) func() error {
	return func(context.Context) func() error {
		br := gobreakerNew(bucket)
		op := func() (struct{}, error) { return struct{}{}, op() }
		return func() error { _, err := br.Execute(op); return err }
	}
}

func failsafePermit(build func() circuitbreaker.CircuitBreaker[any]) func(context.Context) func() error {
	return func(context.Context) func() error {
		br := build()
		return func() error {
			if !br.TryAcquirePermit() {
				return circuitbreaker.ErrOpen
			}
			err := op()
			if err != nil {
				br.RecordError(err)
				return err
			}
			br.RecordSuccess()
			return nil
		}
	}
}

func failsafeExecutor(build func() circuitbreaker.CircuitBreaker[any]) func(context.Context) func() error {
	return func(context.Context) func() error {
		x := failsafe.With(build())
		return func() error { return x.Run(op) }
	}
}

// BenchmarkStack is retry around breaker around a timeout for the attempt, with
// an operation that does not look at its context.
func BenchmarkStack(b *testing.B) { compare(b, stackEntries(opCtx)) }

// BenchmarkStackDone is BenchmarkStack with an operation that asks its context
// for Done, as one that uses the network does.
func BenchmarkStackDone(b *testing.B) { compare(b, stackEntries(opDone)) }

// BenchmarkStackParallel is BenchmarkStack from all processors.
func BenchmarkStackParallel(b *testing.B) { compareShared(b, stackEntries(opCtx)) }

// BenchmarkStackDoneParallel is BenchmarkStackDone from all processors.
func BenchmarkStackDoneParallel(b *testing.B) { compareShared(b, stackEntries(opDone)) }

func stackEntries(op func(context.Context) error) []entry {
	return []entry{
		{"hand-written", func(ctx context.Context) func() error {
			h := new(handBreaker)
			return func() error { return handStack(ctx, h, op) }
		}},
		{"tideover", func(ctx context.Context) func() error {
			br := breaker.Must(breaker.Config{WindowCalls: 100})
			r := retry.Must(policy+" attempt-timeout=5s", retry.WithBreaker(br))
			return func() error { return r.Do(ctx, op) }
		}},
		{"tideover-time", func(ctx context.Context) func() error {
			r := retry.Must(policy+" attempt-timeout=5s", retry.WithBreaker(breaker.Must(breaker.Config{})))
			return func() error { return r.Do(ctx, op) }
		}},
		{"avast-shared-context+gobreaker", func(ctx context.Context) func() error {
			r, br := avast.New(avastOptions(ctx)...), gobreakerNew(0)
			return func() error { return r.Do(func() error { return guarded(ctx, br, op) }) }
		}},
		{"cenkalti+gobreaker", func(ctx context.Context) func() error {
			br := gobreakerNew(0)
			return func() error { return cenkaltiDo(ctx, func() error { return guarded(ctx, br, op) }) }
		}},
		{"eapache", func(ctx context.Context) func() error { // its deadline runs the work on a goroutine
			r, br, dl := eapacheRetrier(), eapache.New(50, 5, 10*time.Second), deadline.New(perAttempt)
			return func() error {
				return r.RunCtx(ctx, func(ctx context.Context) error {
					return br.Run(func() error { return dl.Run(func(<-chan struct{}) error { return op(ctx) }) })
				})
			}
		}},
		{"failsafe", func(ctx context.Context) func() error {
			x := failsafe.With(failsafeRetry[any](), failsafeCount(), timeout.New[any](perAttempt))
			op := func(e failsafe.Execution[any]) error { return op(e.Context()) }
			return func() error { return x.WithContext(ctx).RunWithExecution(op) }
		}},
	}
}

// guarded combines libraries that have one purpose each, as their users do by hand.
func guarded(ctx context.Context, br *gobreaker.CircuitBreaker[struct{}], op func(context.Context) error) error {
	_, err := br.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, perAttempt)
		defer cancel()
		return struct{}{}, op(ctx)
	})
	return err
}
