package breaker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/breaker"
)

// op is the guarded call: it cannot be inlined, and returns at once.
//
//go:noinline
func op(ctx context.Context) error { return ctx.Err() }

// handWritten is the least that a breaker which counts can do: one atomic load
// before the call and one atomic add after it.
type handWritten struct {
	open atomic.Bool
	_    [64]byte
	n    atomic.Uint64
}

func (h *handWritten) do(ctx context.Context, op func(context.Context) error) error {
	if h.open.Load() {
		return breaker.ErrOpen
	}
	err := op(ctx)
	if err == nil {
		h.n.Add(1)
	}
	return err
}

// guards are the ways to make a call, the baseline first.
func guards() []guard {
	calls := breaker.Config{WindowCalls: 100}
	slow := breaker.Config{WindowCalls: 100, SlowCall: time.Second}
	forced := breaker.Must(calls)
	_ = forced.Force(breaker.ForcedClosed)
	h := new(handWritten)
	return []guard{
		{"hand-written", func(ctx context.Context) error { return h.do(ctx, op) }},
		{"calls/permit", permits(breaker.Must(calls))},
		{"calls/do", do(breaker.Must(calls))},
		{"calls+slow/permit", permits(breaker.Must(slow))},
		{"time/permit", permits(breaker.Must(breaker.Config{}))},
		{"time/do", do(breaker.Must(breaker.Config{}))},
		{"forced/permit", permits(forced)},
	}
}

type guard struct {
	name string
	call func(context.Context) error
}

func permits(b *breaker.Breaker) func(context.Context) error {
	return func(ctx context.Context) error {
		p, err := b.Allow()
		if err != nil {
			return err
		}
		if err = op(ctx); err != nil {
			p.Done(breaker.Failure)
			return err
		}
		p.Done(breaker.Success)
		return nil
	}
}

func do(b *breaker.Breaker) func(context.Context) error {
	return func(ctx context.Context) error { return breaker.Do(ctx, b, op) }
}

func BenchmarkClosed(b *testing.B) {
	for _, g := range guards() {
		b.Run(g.name, func(b *testing.B) {
			b.ReportAllocs()
			ctx := b.Context()
			for b.Loop() {
				if err := g.call(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkClosedParallel(b *testing.B) {
	for _, g := range guards() {
		b.Run(g.name, func(b *testing.B) {
			b.ReportAllocs()
			ctx := b.Context()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := g.call(ctx); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkFailing measures a window in which every second call fails, which
// the rule allows: the lock and the list of bad calls in steady state.
func BenchmarkFailing(b *testing.B) {
	for name, c := range map[string]breaker.Config{
		"calls": {WindowCalls: 100},
		"time":  {},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			br := breaker.Must(c)
			for i := 0; b.Loop(); i++ {
				p, err := br.Allow()
				if err != nil {
					b.Fatal(err)
				}
				p.Done(breaker.Result(i % 2))
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	b.ReportAllocs()
	br := breaker.Must(breaker.Config{})
	_ = br.Force(breaker.ForcedOpen)
	for b.Loop() {
		if _, err := br.Allow(); err == nil {
			b.Fatal("Allow() of a forced-open breaker: got a permit")
		}
	}
}
