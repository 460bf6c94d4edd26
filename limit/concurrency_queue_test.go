package limit

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func enqueue(t *testing.T, c *Concurrency, now time.Duration, p Priority, deadline time.Duration, want WaitState) *Waiter {
	t.Helper()
	w, _, err := c.EnqueueAt(now, p, deadline)
	if err != nil || w.State() != want {
		t.Fatalf("EnqueueAt(%v, %v, %v) = %v, %v, want state %d", now, p, deadline, w, err, want)
	}
	return w
}

func TestASimulatorDrivesTheQueueWithoutBlocking(t *testing.T) {
	t.Parallel()
	const s = time.Second
	c := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 3})
	enqueue(t, c, 0, Normal, 0, Granted)
	low := enqueue(t, c, 0, Low, 0, Waiting)
	late := enqueue(t, c, 0, High, 2*s, Waiting)
	normal := enqueue(t, c, 0, Normal, 0, Waiting)

	if _, _, err := c.EnqueueAt(s, Low, 0); !errors.Is(err, ErrQueueFull) {
		t.Errorf("EnqueueAt into a full queue = %v, want ErrQueueFull", err)
	}
	if _, _, err := c.EnqueueAt(s, Highest, s); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("EnqueueAt at its deadline = %v, want DeadlineExceeded", err)
	}
	high, shed, err := c.EnqueueAt(s, High, 0)
	if err != nil || shed != low || low.State() != Shed {
		t.Errorf("EnqueueAt of a high class shed %v with %v, want the low one", shed, err)
	}
	if got := c.ReleaseAt(3 * s); got != high || late.State() != Expired {
		t.Errorf("ReleaseAt granted %v and left the late one in state %d, want the high one and expired", got, late.State())
	}
	if !c.Cancel(normal) || c.Cancel(normal) || c.Cancel(high) {
		t.Error("Cancel must succeed once for a waiter and never for one that was granted")
	}
	if got := c.ReleaseAt(4 * s); got != nil {
		t.Errorf("ReleaseAt granted %v, want nil", got)
	}
	wantStats(t, c, 0, 0)
}

func TestReleaseToAQueueOfLateCallersFreesThePermit(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 3})
	enqueue(t, c, 0, Normal, 0, Granted)
	enqueue(t, c, 0, Normal, time.Second, Waiting)
	enqueue(t, c, 0, Normal, time.Second, Waiting)
	if w := c.ReleaseAt(time.Second); w != nil {
		t.Errorf("ReleaseAt granted %v, want nil", w)
	}
	wantStats(t, c, 0, 0)
	if !c.TryAcquire() {
		t.Error("the permit is gone")
	}
}

// A permit that arrives at the moment its caller gives up goes to the next one.
func TestAPermitForACallerThatGaveUpIsPassedOn(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 2})
	enqueue(t, c, 0, Normal, 0, Granted)
	first := enqueue(t, c, 0, Normal, 0, Waiting)
	second := enqueue(t, c, 0, Normal, 0, Waiting)
	c.ReleaseAt(0)
	c.abandon(first)
	if first.State() != Granted || second.State() != Granted {
		t.Errorf("states are %d and %d, want both granted, one after the other", first.State(), second.State())
	}
	c.abandon(second)
	wantStats(t, c, 0, 0)
}

// Surplus releases by many goroutines at once leave the count at zero.
func TestConcurrentReleasesTooManyDoNoHarm(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, ConcurrencyConfig{Max: 3})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				c.Release()
			}
		})
	}
	wg.Wait()
	if s := c.Stats(); s.InUse != 0 || s.Max != 3 {
		t.Errorf("Stats() = %d of %d in use, want 0 of 3", s.InUse, s.Max)
	}
}

func TestSetMaxAtReturnsWhomItLetIn(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 3})
	enqueue(t, c, 0, Normal, 0, Granted)
	low := enqueue(t, c, 0, Low, 0, Waiting)
	high := enqueue(t, c, 0, High, 0, Waiting)
	granted, err := c.SetMaxAt(0, 5)
	if err != nil || len(granted) != 2 || granted[0] != high || granted[1] != low {
		t.Errorf("SetMaxAt = %v, %v, want the high and the low waiter", granted, err)
	}
	if !c.TryAcquire() {
		t.Error("without waiters and with free permits TryAcquire is false")
	}
}

// No caller starves: against an endless stream of urgent callers with
// deadlines, a caller of the lowest class without one is served after five
// periods.
func TestAgingServesEverybody(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, ConcurrencyConfig{Max: 1, Queue: 100, Aging: time.Second})
	enqueue(t, c, 0, Normal, 0, Granted)
	w := enqueue(t, c, 0, Lowest, 0, Waiting)
	now := time.Duration(0)
	for ; w.State() == Waiting && now < time.Minute; now += 100 * time.Millisecond {
		enqueue(t, c, now, Highest, now+time.Hour, Waiting)
		c.ReleaseAt(now)
	}
	if now < 4*time.Second || now > 6*time.Second {
		t.Errorf("the lowest waiter was served after %v, want about 5s", now)
	}
}

// Permits are neither lost nor created while callers come, go and give up.
func TestNoPermitIsLost(t *testing.T) {
	t.Parallel()
	const permits, callers, rounds = 4, 32, 60
	c := newConcurrency(t, ConcurrencyConfig{Max: permits, Queue: 12})
	var running, most, served atomic.Int64
	call := func(r *rand.Rand) {
		ctx, cancel := context.WithCancel(context.Background())
		if r.IntN(4) > 0 { // the others do not give up
			ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(200))*time.Microsecond)
		}
		defer cancel()
		if c.Acquire(WithPriority(ctx, Lowest+Priority(r.IntN(Classes)))) != nil {
			return
		}
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		for range r.IntN(500) {
			_ = ctx.Err()
		}
		served.Add(1)
		running.Add(-1)
		c.Release()
	}
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 8))
			for range rounds {
				call(r)
			}
		})
	}
	wg.Wait()
	if most.Load() > permits || served.Load() == 0 {
		t.Errorf("%d ran at once and %d were served, want at most %d at once and some served", most.Load(), served.Load(), permits)
	}
	wantStats(t, c, 0, 0)
	for i := range permits {
		if !c.TryAcquire() {
			t.Fatalf("permit %d is gone", i)
		}
	}
}

// TestNoPermitIsLostWhileTheMaximumChanges is TestNoPermitIsLost with a maximum that
// changes all the time.
func TestNoPermitIsLostWhileTheMaximumChanges(t *testing.T) {
	t.Parallel()
	c := newConcurrency(t, ConcurrencyConfig{Max: 3, Queue: 64})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				if err := c.Acquire(context.Background()); err != nil {
					t.Errorf("Acquire = %v", err)
					return
				}
				c.Release()
			}
		})
	}
	wg.Go(func() {
		for i := range 100 {
			if err := c.SetMax(1 + i%5); err != nil {
				t.Errorf("SetMax = %v", err)
			}
		}
	})
	wg.Wait()
	wantStats(t, c, 0, 0)
}
