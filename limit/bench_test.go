package limit

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// The name before the slash is what is measured; "by hand" is code that does
// the same without this package.

func BenchmarkBudgetSuccess(b *testing.B) {
	for _, spec := range []BudgetSpec{Refund(1, 0.1, 10), Ratio(0.2), Bucket(100, 0.1)} {
		b.Run(spec.String(), func(b *testing.B) {
			budget := newBudget(b, spec)
			for b.Loop() {
				c := budget.Begin()
				c.End(true)
			}
		})
	}
	b.Run("by hand, atomic load", func(b *testing.B) {
		var tokens atomic.Int64
		for b.Loop() {
			if tokens.Load() < 0 {
				tokens.Add(1)
			}
		}
	})
}

func BenchmarkBudgetSuccessParallel(b *testing.B) {
	budget := newBudget(b, Refund(1, 0.1, 10))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c := budget.Begin()
			c.End(true)
		}
	})
}

func BenchmarkBudgetRetry(b *testing.B) {
	for _, spec := range []BudgetSpec{Refund(1, 0.1, 10), Ratio(0.2), Bucket(100, 1)} {
		b.Run(spec.String(), func(b *testing.B) {
			budget := newBudget(b, spec)
			for b.Loop() {
				c := budget.Begin()
				c.Fail()
				c.Retry()
				c.End(true)
			}
		})
	}
}

func BenchmarkConcurrency(b *testing.B) {
	ctx := context.Background()
	b.Run("Acquire and Release", func(b *testing.B) {
		c := newConcurrency(b, ConcurrencyConfig{Max: 10, Queue: 10})
		for b.Loop() {
			if c.Acquire(ctx) == nil {
				c.Release()
			}
		}
	})
	b.Run("Acquire and Release under a cancelable context", func(b *testing.B) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c := newConcurrency(b, ConcurrencyConfig{Max: 10, Queue: 10})
		for b.Loop() {
			if c.Acquire(ctx) == nil {
				c.Release()
			}
		}
	})
	b.Run("refused", func(b *testing.B) {
		c := newConcurrency(b, ConcurrencyConfig{Max: 1})
		c.TryAcquire()
		for b.Loop() {
			_ = c.Acquire(ctx)
		}
	})
	b.Run("by hand, buffered channel", func(b *testing.B) {
		c := make(chan struct{}, 10)
		for b.Loop() {
			select {
			case c <- struct{}{}:
				<-c
			case <-ctx.Done():
			}
		}
	})
	b.Run("by hand, two atomic adds", func(b *testing.B) {
		var n atomic.Int64
		for b.Loop() {
			if n.Add(1) <= 10 {
				n.Add(-1)
			}
		}
	})
}

func BenchmarkConcurrencyParallel(b *testing.B) {
	c, ctx := newConcurrency(b, ConcurrencyConfig{Max: 100, Queue: 10}), context.Background()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if c.Acquire(ctx) == nil {
				c.Release()
			}
		}
	})
}

// One permit changes hands through a queue of a thousand.
func BenchmarkConcurrencyQueue(b *testing.B) {
	c := newConcurrency(b, ConcurrencyConfig{Max: 1, Queue: 1000})
	c.TryAcquire()
	now := time.Duration(0)
	for i := range 1000 {
		_, _, _ = c.EnqueueAt(now, Lowest+Priority(i%Classes), 0)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += time.Millisecond
		c.ReleaseAt(now)
		_, _, _ = c.EnqueueAt(now, Lowest+Priority(i%Classes), 0)
	}
}

func BenchmarkAdaptive(b *testing.B) {
	a, ctx := newAdaptive(b, AdaptiveConfig{Max: 100}), context.Background()
	for b.Loop() {
		if t, err := a.Acquire(ctx); err == nil {
			t.Done(Answered)
		}
	}
}

func BenchmarkRate(b *testing.B) {
	b.Run("Allow", func(b *testing.B) {
		r := newRate(b, RateConfig{Rate: Frequency{1_000_000_000, time.Second}, Burst: 1000})
		for b.Loop() {
			r.Allow()
		}
	})
	b.Run("Allow at an uneven rate", func(b *testing.B) {
		r := newRate(b, RateConfig{Rate: Frequency{700_000_001, time.Second}, Burst: 1000})
		for b.Loop() {
			r.Allow()
		}
	})
	b.Run("Allow refused", func(b *testing.B) {
		r := newRate(b, RateConfig{Rate: Frequency{1, time.Hour}})
		for b.Loop() {
			r.Allow()
		}
	})
	b.Run("by hand, clock and atomic", func(b *testing.B) {
		var last atomic.Int64
		for b.Loop() {
			last.Store(int64(clock.Now()))
		}
	})
}

func BenchmarkRateParallel(b *testing.B) {
	r := newRate(b, RateConfig{Rate: Frequency{1_000_000_000, time.Second}, Burst: 1000})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Allow()
		}
	})
}
