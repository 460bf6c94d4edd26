package bench_test

import (
	"context"
	"testing"

	avast "github.com/avast/retry-go/v5"
	"github.com/cenkalti/backoff/v7"
	"github.com/failsafe-go/failsafe-go"
	"github.com/googleapis/gax-go/v2"
	goretry "github.com/sethvargo/go-retry"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tideover/tideover/retry"
)

const policy = "exponential(100ms..10s) jitter=equal attempts=4"

// BenchmarkDo is a call that succeeds at once. The operation is a plain
// function value.
func BenchmarkDo(b *testing.B) { compare(b, doEntries()) }

// BenchmarkDoParallel is BenchmarkDo from all processors.
func BenchmarkDoParallel(b *testing.B) { compareShared(b, doEntries()) }

func doEntries() []entry {
	return []entry{
		{"hand-written", func(ctx context.Context) func() error {
			return func() error { return handDo(ctx, opCtx) }
		}},
		{"hand-written-checked", func(ctx context.Context) func() error { // makes no attempt with a context that has ended
			return func() error {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				return handDo(ctx, opCtx)
			}
		}},
		{"tideover", func(ctx context.Context) func() error {
			r := retry.Must(policy)
			return func() error { return r.Do(ctx, opCtx) }
		}},
		{"eapache", func(ctx context.Context) func() error {
			r := eapacheRetrier()
			return func() error { return r.RunCtx(ctx, opCtx) }
		}},
		{"k8s-wait", func(ctx context.Context) func() error {
			cond := func(ctx context.Context) (bool, error) { return opCtx(ctx) == nil, nil }
			return func() error { return wait.ExponentialBackoffWithContext(ctx, k8sBackoff(), cond) }
		}},
		{"avast-shared-context", func(ctx context.Context) func() error {
			r := avast.New(avastOptions(ctx)...)
			return func() error { return r.Do(op) }
		}},
		{"avast", func(ctx context.Context) func() error {
			return func() error { return avast.New(avastOptions(ctx)...).Do(op) }
		}},
		{"gax", func(ctx context.Context) func() error {
			again := gaxRetry(gaxBackoff())
			op := func(ctx context.Context, _ gax.CallSettings) error { return opCtx(ctx) }
			return func() error { return gax.Invoke(ctx, op, again) }
		}},
		{"sethvargo", func(ctx context.Context) func() error {
			return func() error { return goretry.Do(ctx, sethvargoBackoff(), opCtx) }
		}},
		{"cenkalti", func(ctx context.Context) func() error {
			return func() error { return cenkaltiDo(ctx, op) }
		}},
		{"failsafe", func(ctx context.Context) func() error {
			x := failsafe.With(failsafeRetry[any]())
			return func() error { return x.WithContext(ctx).Run(op) }
		}},
	}
}

// BenchmarkDoClosure is BenchmarkDo with an operation that captures variables,
// as in real code: it shows whether the operation escapes to the heap.
func BenchmarkDoClosure(b *testing.B) {
	in := 1
	compare(b, []entry{
		{"hand-written", func(ctx context.Context) func() error {
			return func() error {
				out := 0
				err := handDo(ctx, func(ctx context.Context) error {
					v, err := opValueCtx(ctx)
					out = v + in
					return err
				})
				sinkInt += out
				return err
			}
		}},
		{"tideover", func(ctx context.Context) func() error {
			r := retry.Must(policy)
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
		}},
		{"eapache", func(ctx context.Context) func() error {
			r := eapacheRetrier()
			return func() error {
				out := 0
				err := r.RunCtx(ctx, func(ctx context.Context) error {
					v, err := opValueCtx(ctx)
					out = v + in
					return err
				})
				sinkInt += out
				return err
			}
		}},
		{"k8s-wait", func(ctx context.Context) func() error {
			return func() error {
				out := 0
				err := wait.ExponentialBackoffWithContext(ctx, k8sBackoff(), func(ctx context.Context) (bool, error) {
					v, err := opValueCtx(ctx)
					out = v + in
					return err == nil, nil
				})
				sinkInt += out
				return err
			}
		}},
		{"avast", func(ctx context.Context) func() error {
			return func() error {
				out := 0
				err := avast.New(avastOptions(ctx)...).Do(func() error {
					v, err := opValueCtx(ctx)
					out = v + in
					return err
				})
				sinkInt += out
				return err
			}
		}},
		{"sethvargo", func(ctx context.Context) func() error {
			return func() error {
				out := 0
				err := goretry.Do(ctx, sethvargoBackoff(), func(ctx context.Context) error {
					v, err := opValueCtx(ctx)
					out = v + in
					return err
				})
				sinkInt += out
				return err
			}
		}},
		{"cenkalti", func(ctx context.Context) func() error {
			return func() error {
				out := 0
				_, err := backoff.Retry(ctx, func() (struct{}, error) {
					v, err := opValueCtx(ctx)
					out = v + in
					return struct{}{}, err
				}, backoff.WithBackOff(cenkaltiBackOff()), backoff.WithMaxTries(attempts))
				sinkInt += out
				return err
			}
		}},
		{"failsafe", func(ctx context.Context) func() error {
			x := failsafe.With(failsafeRetry[any]())
			return func() error {
				out := 0
				err := x.WithContext(ctx).RunWithExecution(func(e failsafe.Execution[any]) error {
					v, err := opValueCtx(e.Context())
					out = v + in
					return err
				})
				sinkInt += out
				return err
			}
		}},
	})
}

// value makes an entry of a call with a result.
func value(peer string, prepare func(ctx context.Context) func() (int, error)) entry {
	return entry{peer, func(ctx context.Context) func() error {
		call := prepare(ctx)
		return func() error {
			v, err := call()
			sinkInt += v
			return err
		}
	}}
}

// BenchmarkValue is a call with a result that succeeds at once.
func BenchmarkValue(b *testing.B) {
	compare(b, []entry{
		value("hand-written", func(ctx context.Context) func() (int, error) {
			return func() (int, error) { return handValue(ctx, opValueCtx) }
		}),
		value("tideover", func(ctx context.Context) func() (int, error) {
			r := retry.Must(policy)
			return func() (int, error) { return retry.Value(ctx, r, opValueCtx) }
		}),
		value("avast-shared-context", func(ctx context.Context) func() (int, error) {
			r := avast.NewWithData[int](avastOptions(ctx)...)
			return func() (int, error) { return r.Do(opValue) }
		}),
		value("avast", func(ctx context.Context) func() (int, error) {
			return func() (int, error) { return avast.NewWithData[int](avastOptions(ctx)...).Do(opValue) }
		}),
		value("sethvargo", func(ctx context.Context) func() (int, error) {
			return func() (int, error) { return goretry.DoValue(ctx, sethvargoBackoff(), opValueCtx) }
		}),
		value("cenkalti", func(ctx context.Context) func() (int, error) {
			return func() (int, error) {
				return backoff.Retry(ctx, opValue, backoff.WithBackOff(cenkaltiBackOff()), backoff.WithMaxTries(attempts))
			}
		}),
		value("failsafe", func(ctx context.Context) func() (int, error) {
			x := failsafe.With(failsafeRetry[int]())
			return func() (int, error) { return x.WithContext(ctx).Get(opValue) }
		}),
	})
}

// BenchmarkLoop is BenchmarkValue in the form of a loop, which no peer has.
func BenchmarkLoop(b *testing.B) {
	compare(b, []entry{
		value("hand-written", func(ctx context.Context) func() (int, error) {
			return func() (int, error) { return handValue(ctx, opValueCtx) }
		}),
		value("tideover", func(ctx context.Context) func() (int, error) {
			r := retry.Must(policy)
			return func() (v int, err error) {
				for a := range r.Attempts(ctx, &err) {
					v, err = opValueCtx(a.Context())
				}
				return v, err
			}
		}),
	})
}

// BenchmarkFail3 fails three times and then succeeds, without delay.
func BenchmarkFail3(b *testing.B) {
	compare(b, []entry{
		{"hand-written", func(ctx context.Context) func() error {
			f := new(flaky)
			op := f.call
			return func() error { return handFixed(ctx, 0, op) }
		}},
		{"tideover", func(ctx context.Context) func() error {
			r, f := retry.Must("fixed(0s) attempts=4"), new(flaky)
			op := f.callCtx
			return func() error { return r.Do(ctx, op) }
		}},
		{"tideover-loop", func(ctx context.Context) func() error {
			r, f := retry.Must("fixed(0s) attempts=4"), new(flaky)
			return func() (err error) {
				for range r.Attempts(ctx, &err) {
					err = f.call()
				}
				return err
			}
		}},
		{"eapache", func(ctx context.Context) func() error {
			r, f := eapacheNow(), new(flaky)
			op := f.callCtx
			return func() error { return r.RunCtx(ctx, op) }
		}},
		{"k8s-wait", func(ctx context.Context) func() error {
			f := new(flaky)
			cond := func(context.Context) (bool, error) { return f.call() == nil, nil }
			return func() error {
				return wait.ExponentialBackoffWithContext(ctx, wait.Backoff{Steps: attempts}, cond)
			}
		}},
		{"avast-shared-context", func(ctx context.Context) func() error {
			r, f := avastNow(ctx), new(flaky)
			op := f.call
			return func() error { return r.Do(op) }
		}},
		{"cenkalti", func(ctx context.Context) func() error {
			f := new(flaky)
			op := f.call
			return func() error { return cenkaltiNow(ctx, op) }
		}},
		{"failsafe", func(ctx context.Context) func() error {
			x, f := failsafe.With(failsafeNow()), new(flaky)
			op := f.call
			return func() error { return x.WithContext(ctx).Run(op) }
		}},
	})
}

// BenchmarkFail3Wait is BenchmarkFail3 with a delay of a nanosecond: what it
// costs to wait at all.
func BenchmarkFail3Wait(b *testing.B) {
	compare(b, []entry{
		{"hand-written-sleep", func(context.Context) func() error {
			f := new(flaky)
			op := f.call
			return func() error { return handSleep(1, op) }
		}},
		{"hand-written-timer", func(ctx context.Context) func() error {
			f := new(flaky)
			op := f.call
			return func() error { return handFixed(ctx, 1, op) }
		}},
		{"tideover", func(ctx context.Context) func() error {
			r, f := retry.Must("fixed(1ns) attempts=4"), new(flaky)
			op := f.callCtx
			return func() error { return r.Do(ctx, op) }
		}},
		{"sethvargo", func(ctx context.Context) func() error {
			f := new(flaky)
			op := func(context.Context) error { return goretry.RetryableError(f.call()) }
			return func() error { return goretry.Do(ctx, sethvargoSoon(), op) }
		}},
		{"gax", func(ctx context.Context) func() error {
			f := new(flaky)
			op := func(context.Context, gax.CallSettings) error { return f.call() }
			again := gaxRetry(gax.Backoff{Initial: 1, Max: 1, Multiplier: 1})
			return func() error { return gax.Invoke(ctx, op, again) }
		}},
	})
}

// failing makes an entry of a call that must fail.
func failing(peer string, prepare func(ctx context.Context) func() error) entry {
	return entry{peer, func(ctx context.Context) func() error {
		call := prepare(ctx)
		return func() error {
			if sinkErr = call(); sinkErr == nil {
				panic("the call succeeded")
			}
			return nil
		}
	}}
}

// BenchmarkGiveUp fails four times without delay, and makes the final error.
func BenchmarkGiveUp(b *testing.B) {
	compare(b, []entry{
		failing("hand-written", func(ctx context.Context) func() error {
			return func() error { return handFixed(ctx, 0, opFail) }
		}),
		failing("tideover", func(ctx context.Context) func() error {
			r := retry.Must("fixed(0s) attempts=4")
			return func() error { return r.Do(ctx, opFailCtx) }
		}),
		failing("eapache", func(ctx context.Context) func() error {
			r := eapacheNow()
			return func() error { return r.RunCtx(ctx, opFailCtx) }
		}),
		failing("avast-shared-context", func(ctx context.Context) func() error {
			r := avastNow(ctx)
			return func() error { return r.Do(opFail) }
		}),
		failing("sethvargo", func(ctx context.Context) func() error {
			op := func(context.Context) error { return goretry.RetryableError(errTransient) }
			return func() error { return goretry.Do(ctx, sethvargoSoon(), op) }
		}),
		failing("cenkalti", func(ctx context.Context) func() error {
			return func() error { return cenkaltiNow(ctx, opFail) }
		}),
		failing("failsafe", func(ctx context.Context) func() error {
			x := failsafe.With(failsafeNow())
			return func() error { return x.WithContext(ctx).Run(opFail) }
		}),
	})
}
