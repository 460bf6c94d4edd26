package limit

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newConcurrency(t testing.TB, cfg ConcurrencyConfig) *Concurrency {
	t.Helper()
	c, err := NewConcurrency(cfg)
	if err != nil {
		t.Fatalf("NewConcurrency(%+v): %v", cfg, err)
	}
	return c
}

func wantStats(t *testing.T, c *Concurrency, inUse, waiting int) {
	t.Helper()
	if s := c.Stats(); s.InUse != inUse || s.Waiting != waiting {
		t.Errorf("Stats() = %d in use and %d waiting, want %d and %d", s.InUse, s.Waiting, inUse, waiting)
	}
}

func TestConcurrencyConfigValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewConcurrency(ConcurrencyConfig{Queue: -1, Aging: -time.Second})
	for _, want := range []string{"max: 0 is below 1", "queue: -1 is negative", "aging: -1s is negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want it to say %q", err, want)
		}
	}
	tooMany := maxPermits
	tooMany++ // on a 32-bit machine this is negative, and as wrong
	if err := (ConcurrencyConfig{Max: tooMany}).Validate(); err == nil {
		t.Error("a maximum that does not fit is valid, want an error")
	}
}

func TestConcurrencyHasMaxPermits(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, ConcurrencyConfig{Max: 2})
	for i, want := range []bool{true, true, false} {
		if got := c.TryAcquire(); got != want {
			t.Errorf("TryAcquire %d = %v, want %v", i, got, want)
		}
	}
	if err := c.Acquire(t.Context()); !errors.Is(err, ErrQueueFull) {
		t.Errorf("Acquire without a queue = %v, want ErrQueueFull", err)
	}
	c.Release()
	if err := c.Acquire(t.Context()); err != nil {
		t.Errorf("Acquire after a release = %v, want nil", err)
	}
	wantStats(t, c, 2, 0)
}

func TestConcurrencyIgnoresAReleaseTooMany(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, ConcurrencyConfig{Max: 1})
	c.Release()
	if w := c.ReleaseAt(0); w != nil {
		t.Errorf("ReleaseAt = %v, want nil", w)
	}
	wantStats(t, c, 0, 0)
	if !c.TryAcquire() || c.TryAcquire() {
		t.Error("after releases too many there is not exactly one permit")
	}
}

func TestAcquireOnAnEndedContextTakesNothing(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, ConcurrencyConfig{Max: 1})
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("shutting down")
	cancel(cause)
	if err := c.Acquire(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("Acquire = %v, want the context's error and its cause", err)
	}
	wantStats(t, c, 0, 0)
}

func TestAcquireWaitsUntilItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 10})
		c.TryAcquire()
		served := make(chan Priority, 3)
		for _, p := range []Priority{Low, Normal, High} {
			go func() {
				if err := c.Acquire(WithPriority(t.Context(), p)); err != nil {
					t.Errorf("Acquire of %v = %v", p, err)
				}
				served <- p
			}()
			synctest.Wait()
		}
		if got, want := c.Stats().ByClass, [Classes]int{0, 1, 1, 1, 0}; got != want {
			t.Errorf("waiting by class = %v, want %v", got, want)
		}
		for _, want := range []Priority{High, Normal, Low} {
			if c.TryAcquire() {
				t.Error("TryAcquire overtook a waiter")
			}
			c.Release()
			if got := <-served; got != want {
				t.Errorf("served %v, want %v", got, want)
			}
		}
		c.Release()
		wantStats(t, c, 0, 0)
	})
}

func TestAcquireNeverWaitsPastTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 1})
		c.TryAcquire()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if err := c.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire = %v, want the deadline's error", err)
		}
		if d := time.Since(begin); d != time.Second {
			t.Errorf("Acquire waited %v, want 1s", d)
		}
		wantStats(t, c, 1, 0)
	})
}

func TestCancellationLeavesTheQueueAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 1})
		c.TryAcquire()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Acquire(ctx) }()
		synctest.Wait()
		wantStats(t, c, 1, 1)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire = %v, want the context's error", err)
		}
		wantStats(t, c, 1, 0)
		c.Release()
		if !c.TryAcquire() {
			t.Error("the permit is gone")
		}
	})
}

func TestAFullQueueShedsItsLastForAHigherClassOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 1})
		c.TryAcquire()
		low := make(chan error)
		go func() { low <- c.Acquire(WithPriority(t.Context(), Low)) }()
		synctest.Wait()
		soon, cancel := context.WithTimeout(WithPriority(t.Context(), Low), time.Second)
		defer cancel()
		if err := c.Acquire(soon); !errors.Is(err, ErrQueueFull) {
			t.Errorf("Acquire of an equal with an earlier deadline = %v, want ErrQueueFull", err)
		}
		normal := make(chan error)
		go func() { normal <- c.Acquire(t.Context()) }()
		if err := <-low; !errors.Is(err, ErrShed) {
			t.Errorf("the waiter of a lower class got %v, want ErrShed", err)
		}
		c.Release()
		if err := <-normal; err != nil {
			t.Errorf("the waiter of the higher class got %v, want a permit", err)
		}
	})
}

func TestSetMax(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 10})
		c.TryAcquire()
		for range 3 {
			go func() {
				if err := c.Acquire(t.Context()); err != nil {
					t.Errorf("Acquire = %v", err)
				}
			}()
		}
		synctest.Wait()
		if err := c.SetMax(3); err != nil {
			t.Fatalf("SetMax(3) = %v", err)
		}
		synctest.Wait()
		wantStats(t, c, 3, 1)
		if err := c.SetMax(1); err != nil {
			t.Fatalf("SetMax(1) = %v", err)
		}
		c.Release()
		c.Release()
		wantStats(t, c, 1, 1) // nothing was handed over until the count was below the maximum
		c.Release()
		synctest.Wait()
		wantStats(t, c, 1, 0)
		c.Release()
		wantStats(t, c, 0, 0)
	})
	c := newConcurrency(t, ConcurrencyConfig{Max: 1})
	if err := c.SetMax(0); err == nil || c.Stats().Max != 1 {
		t.Errorf("SetMax(0) = %v and the maximum is %d, want an error and 1", err, c.Stats().Max)
	}
}

func TestAcquireAndReleaseAllocateNothing(t *testing.T) {
	c, ctx := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 1}), context.Background()
	n := testing.AllocsPerRun(100, func() {
		if c.Acquire(ctx) == nil {
			c.Release()
		}
	})
	if n != 0 {
		t.Errorf("Acquire and Release allocate %v times, want 0", n)
	}
}

func TestADeadlineInTheFarFutureIsNoDeadline(t *testing.T) {
	c := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 1})
	c.TryAcquire()
	ctx, cancel := context.WithDeadline(t.Context(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	defer cancel()
	got := make(chan error, 1)
	go func() { got <- c.Acquire(ctx) }()
	for c.Stats().Waiting == 0 && len(got) == 0 {
		runtime.Gosched()
	}
	c.Release()
	if err := <-got; err != nil {
		t.Errorf("Acquire with a deadline in the year 9999: %v", err)
	}
}
