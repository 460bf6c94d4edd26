package bench_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// The baselines: what a careful engineer writes by hand, with no more than the
// scenario needs.

func handDo(ctx context.Context, op func(context.Context) error) error {
	d := baseDelay
	for i := 1; ; i++ {
		err := op(ctx)
		if err == nil || i == attempts {
			return err
		}
		if e := handWait(ctx, rand.N(d)); e != nil {
			return e
		}
		d = min(d*2, capDelay)
	}
}

func handValue[T any](ctx context.Context, op func(context.Context) (T, error)) (T, error) {
	d := baseDelay
	for i := 1; ; i++ {
		v, err := op(ctx)
		if err == nil || i == attempts {
			return v, err
		}
		if e := handWait(ctx, rand.N(d)); e != nil {
			return v, e
		}
		d = min(d*2, capDelay)
	}
}

// handFixed waits the same time after each failure.
func handFixed(ctx context.Context, d time.Duration, op func() error) error {
	for i := 1; ; i++ {
		err := op()
		if err == nil || i == attempts {
			return err
		}
		if e := handWait(ctx, d); e != nil {
			return e
		}
	}
}

func handWait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handSleep needs neither channel nor allocation, and can't be canceled.
func handSleep(d time.Duration, op func() error) error {
	for i := 1; ; i++ {
		err := op()
		if err == nil || i == attempts {
			return err
		}
		time.Sleep(d)
	}
}

func handDelay(i int) time.Duration {
	d := min(baseDelay<<i, capDelay)
	return d/2 + rand.N(d/2)
}

// handBreaker counts with one atomic load before and one atomic add after.
type handBreaker struct {
	open  atomic.Bool
	_     [64]byte
	total atomic.Uint64
}

func (h *handBreaker) do(ctx context.Context, op func(context.Context) error) error {
	if h.open.Load() {
		return errTransient
	}
	err := op(ctx)
	h.total.Add(1)
	return err
}

// handLockedBreaker has the shape of most libraries: the lock before and after,
// the clock once.
type handLockedBreaker struct {
	mu    sync.Mutex
	open  bool
	total uint64
	last  time.Time
}

func (h *handLockedBreaker) do(ctx context.Context, op func(context.Context) error) error {
	h.mu.Lock()
	open := h.open
	h.mu.Unlock()
	if open {
		return errTransient
	}
	err := op(ctx)
	h.mu.Lock()
	h.total++
	h.last = time.Now()
	h.mu.Unlock()
	return err
}

func handStack(ctx context.Context, h *handBreaker, op func(context.Context) error) error {
	return handDo(ctx, func(ctx context.Context) error {
		if h.open.Load() {
			return errTransient
		}
		ctx, cancel := context.WithTimeout(ctx, perAttempt)
		err := op(ctx)
		cancel()
		h.total.Add(1)
		return err
	})
}

func handHedge[T any](ctx context.Context, d time.Duration, op func(context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result, 2)
	run := func() { v, err := op(ctx); results <- result{v, err} }
	go run()
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case r := <-results:
			return r.v, r.err
		case <-t.C:
			go run()
		}
	}
}

// handRate is a token bucket in one word: when it will be full again.
type handRate struct {
	start       time.Time
	full        atomic.Int64
	step, burst int64
}

func (h *handRate) allow() bool {
	now := int64(time.Since(h.start))
	for {
		full := h.full.Load()
		next := max(full, now) + h.step
		if next-now > h.burst {
			return false
		}
		if h.full.CompareAndSwap(full, next) {
			return true
		}
	}
}

// handAdaptive does the least that every adaptive limit must do: it counts the calls
// in flight, times each one and updates an average under a lock.
type handAdaptive struct {
	inflight atomic.Int64
	limit    int64
	mu       sync.Mutex
	average  float64
}

func (h *handAdaptive) do(op func() error) error {
	if h.inflight.Add(1) > h.limit {
		h.inflight.Add(-1)
		return errTransient
	}
	start := time.Now()
	err := op()
	took := float64(time.Since(start))
	h.mu.Lock()
	h.average += (took - h.average) / 10
	h.mu.Unlock()
	h.inflight.Add(-1)
	return err
}
