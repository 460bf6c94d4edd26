package bench_test

import (
	"context"
	"testing"
	"time"

	"github.com/eapache/go-resiliency/semaphore"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"golang.org/x/time/rate"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// must returns v. It panics on an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// BenchmarkHedge is a call that answers before its hedge would start.
func BenchmarkHedge(b *testing.B) {
	compare(b, []entry{
		value("hand-written", func(ctx context.Context) func() (int, error) {
			return func() (int, error) { return handHedge(ctx, time.Second, opValueCtx) }
		}),
		value("tideover", func(ctx context.Context) func() (int, error) {
			h := must(retry.NewHedger(must(retry.Parse("fixed(0s) hedge=1s"))))
			return func() (int, error) { return retry.Hedged(ctx, h, opValueCtx) }
		}),
		value("failsafe", func(ctx context.Context) func() (int, error) {
			x := failsafe.With(hedgepolicy.NewWithDelay[int](time.Second))
			op := func(e failsafe.Execution[int]) (int, error) { return opValueCtx(e.Context()) }
			return func() (int, error) { return x.WithContext(ctx).GetWithExecution(op) }
		}),
	})
}

// BenchmarkConcurrency is a call under a limit of calls at once that has room.
func BenchmarkConcurrency(b *testing.B) { compare(b, concurrencyEntries()) }

// BenchmarkConcurrencyParallel is BenchmarkConcurrency from all processors.
func BenchmarkConcurrencyParallel(b *testing.B) { compareShared(b, concurrencyEntries()) }

func concurrencyEntries() []entry {
	return []entry{
		{"hand-written", func(context.Context) func() error {
			places := make(chan struct{}, 100)
			return func() error {
				select {
				case places <- struct{}{}:
				default:
					return errTransient
				}
				err := op()
				<-places
				return err
			}
		}},
		{"tideover", func(ctx context.Context) func() error {
			c := must(limit.NewConcurrency(limit.ConcurrencyConfig{Max: 100}))
			return func() error {
				if err := c.Acquire(ctx); err != nil {
					return err
				}
				err := op()
				c.Release()
				return err
			}
		}},
		{"eapache", func(context.Context) func() error {
			s := semaphore.New(100, time.Second)
			return func() error {
				if err := s.Acquire(); err != nil {
					return err
				}
				err := op()
				s.Release()
				return err
			}
		}},
		{"failsafe-permit", func(context.Context) func() error {
			bh := bulkhead.New[any](100)
			return func() error {
				if !bh.TryAcquirePermit() {
					return bulkhead.ErrFull
				}
				err := op()
				bh.ReleasePermit()
				return err
			}
		}},
		{"failsafe", func(context.Context) func() error {
			x := failsafe.With(bulkhead.New[any](100))
			return func() error { return x.Run(op) }
		}},
	}
}

// BenchmarkRate asks a limit of calls per second that has room.
func BenchmarkRate(b *testing.B) { compare(b, rateEntries()) }

// BenchmarkRateParallel is BenchmarkRate from all processors.
func BenchmarkRateParallel(b *testing.B) { compareShared(b, rateEntries()) }

// allowing makes an entry of a limit that must always allow.
func allowing(peer string, prepare func() (allow func() bool)) entry {
	return entry{peer, func(context.Context) func() error {
		allow := prepare()
		return func() error {
			if !allow() {
				return errTransient
			}
			return nil
		}
	}}
}

func rateEntries() []entry {
	const (
		perSecond = 1e9
		burst     = 1e9
	)
	return []entry{
		allowing("hand-written", func() func() bool {
			return (&handRate{start: time.Now(), step: 1, burst: burst}).allow
		}),
		allowing("tideover", func() func() bool {
			f := limit.Frequency{Events: perSecond, Per: time.Second}
			return must(limit.NewRate(limit.RateConfig{Rate: f, Burst: burst})).Allow
		}),
		allowing("tideover-uneven", func() func() bool { // an interval that is no whole number of nanoseconds
			f := limit.Frequency{Events: 3e8, Per: time.Second}
			return must(limit.NewRate(limit.RateConfig{Rate: f, Burst: burst})).Allow
		}),
		allowing("x-time-rate", func() func() bool { return rate.NewLimiter(perSecond, burst).Allow }),
		allowing("failsafe", func() func() bool {
			return ratelimiter.NewBursty[any](perSecond, time.Second).TryAcquirePermit
		}),
	}
}

// BenchmarkAdaptive is a call under a limit that follows how long calls take.
func BenchmarkAdaptive(b *testing.B) {
	compare(b, []entry{
		{"hand-written", func(context.Context) func() error {
			h := &handAdaptive{limit: 100}
			return func() error { return h.do(op) }
		}},
		{"tideover", func(ctx context.Context) func() error {
			a := must(limit.NewAdaptive(limit.AdaptiveConfig{Max: 100}))
			return func() error {
				t, err := a.Acquire(ctx)
				if err != nil {
					return err
				}
				err = op()
				t.Done(limit.Answered)
				return err
			}
		}},
		{"failsafe-permit", func(context.Context) func() error {
			l := adaptivelimiter.NewWithDefaults[any]()
			return func() error {
				p, ok := l.TryAcquirePermit()
				if !ok {
					return adaptivelimiter.ErrExceeded
				}
				err := op()
				p.Record()
				return err
			}
		}},
		{"failsafe", func(context.Context) func() error {
			x := failsafe.With(adaptivelimiter.NewWithDefaults[any]())
			return func() error { return x.Run(op) }
		}},
	})
}
