package retry

// The defects found by probing other libraries, each shown to be absent here.
// Those of breakers alone (9, 10, 12) are tested in package breaker too, those
// of HTTP (4, 7) in package retryhttp.

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
)

func TestPeers1NoWaitOutlivesTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range []string{"fixed(10s) attempts=3", "fixed(10s) attempts=3 attempt-timeout=1m"} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			start := time.Now()
			op, at := failing(9, errFlaky)
			err := Must(policy).Do(ctx, op)
			cancel()
			wantError(t, err, StopDeadline, 1, errFlaky)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v is not a context.DeadlineExceeded", err)
			}
			if took := time.Since(start); took != 0 || len(*at) != 1 {
				t.Errorf("gave up after %v and %d attempts, want at once", took, len(*at))
			}
		}
	})
}

func TestPeers2TheRealErrorAndTheCauseSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("user left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		op, _ := failing(9, errFlaky)
		err := Must("fixed(1m) attempts=3").Do(ctx, op)
		for _, want := range []error{errFlaky, why, StopCanceled, context.Canceled} {
			if !errors.Is(err, want) {
				t.Errorf("%v does not wrap %v", err, want)
			}
		}
	})
}

func TestPeers3ASuccessIsKeptAndADeadContextIsNotUsed(t *testing.T) {
	for _, policy := range []string{"fixed(0s) attempts=3", "fixed(0s) attempts=3 attempt-timeout=1m"} {
		ctx, cancel := context.WithCancel(t.Context())
		r := Must(policy)
		if v, err := Value(ctx, r, func(context.Context) (int, error) { cancel(); return 42, nil }); v != 42 || err != nil {
			t.Errorf("%s: a success during a cancellation gave %d, %v", policy, v, err)
		}
		called := false
		op := func(context.Context) error { called = true; return nil }
		wantError(t, r.Do(ctx, op), StopCanceled, 0, context.Canceled)
		_, err := Value(ctx, r, func(ctx context.Context) (int, error) { return 0, op(ctx) })
		wantError(t, err, StopCanceled, 0, context.Canceled)
		if called {
			t.Errorf("%s: the operation ran with a dead context", policy)
		}
	}
}

func TestPeers5JitterStaysBelowTheCapAndSpreadsOnThePlateau(t *testing.T) {
	p := mustParse(t, "exponential(1s..8s) jitter=50% attempts=unlimited")
	seen := map[time.Duration]bool{}
	seeded := Must("fixed(0s)", WithSeed(1)).random
	for range 1000 {
		d := Decide(p, State{Attempt: 50}, Outcome{}, Gates{}, seeded())
		if d.Wait > 8*time.Second || d.Stop != 0 {
			t.Fatalf("on the plateau: %+v, want a wait within the cap", d)
		}
		seen[d.Wait] = true
	}
	if len(seen) < 990 {
		t.Errorf("%d different waits of 1000 on the plateau", len(seen))
	}
}

func TestPeers6ServerDelaysAreBounded(t *testing.T) {
	tests := []struct {
		after time.Duration
		want  Decision
	}{
		{-time.Second, Decision{Wait: time.Second, Prev: time.Second}}, // states no wait
		{time.Minute, Decision{Wait: time.Minute, By: ByServer}},
		{10 * 365 * 24 * time.Hour, Decision{Stop: StopServerWait}},
		{math.MaxInt64, Decision{Stop: StopServerWait}},
	}
	p := mustParse(t, "fixed(1s) attempts=3")
	for _, tt := range tests {
		if got := Decide(p, State{Attempt: 1}, OutcomeOf(After(errFlaky, tt.after)), Gates{}, 0); got != tt.want {
			t.Errorf("after %v: %+v, want %+v", tt.after, got, tt.want)
		}
	}
}

func TestPeers8NoWaitTowardsAnOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.Must(breaker.Config{})
		r := Must("fixed(1s) attempts=5", WithBreaker(b))
		start := time.Now()
		n := 0
		err := r.Do(t.Context(), func(context.Context) error {
			n++
			if err := b.Force(breaker.ForcedOpen); err != nil { // open for longer than the test
				t.Error(err)
			}
			return errFlaky
		})
		wantError(t, err, StopBreaker, 1, errFlaky)
		if time.Since(start) != 0 || n != 1 {
			t.Errorf("gave up after %v and %d attempts, want at once", time.Since(start), n)
		}
		err = r.Do(t.Context(), func(context.Context) error { n++; return nil })
		wantError(t, err, StopBreaker, 0, breaker.ErrOpen)
		if n != 1 {
			t.Error("the operation ran behind an open breaker")
		}
	})
}

func TestPeers9CallbacksMayAskForTheState(t *testing.T) {
	var r *Runner
	var b *breaker.Breaker
	asked := 0
	b = breaker.Must(breaker.Config{ConsecutiveFailures: 1, WindowCalls: 5}, breaker.WithObserver(func(breaker.Event) {
		asked++
		_ = b.State()
		_ = r.Do(context.Background(), func(context.Context) error { return nil })
	}))
	r = Must("fixed(0s)", WithBreaker(b))
	_ = r.Do(t.Context(), func(context.Context) error { return errFlaky })
	if asked != 1 || b.State() != breaker.Open {
		t.Errorf("asked %d times, breaker %v", asked, b.State())
	}
}

func TestPeers10AHungProbeExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.Must(breaker.Config{ConsecutiveFailures: 1, WindowCalls: 5, ProbeTimeout: time.Minute})
		r := Must("fixed(0s)", WithBreaker(b))
		_ = r.Do(t.Context(), func(context.Context) error { return errFlaky })
		time.Sleep(b.OpenFor())
		hung := make(chan error)
		go func() {
			hung <- r.Do(t.Context(), func(context.Context) error { time.Sleep(time.Hour); return errFlaky })
		}()
		synctest.Wait()
		wantError(t, r.Do(t.Context(), func(context.Context) error { return nil }), StopBreaker, 0, breaker.ErrOpen)
		time.Sleep(time.Minute)
		if err := r.Do(t.Context(), func(context.Context) error { return nil }); err != nil || b.State() != breaker.Closed {
			t.Errorf("after the probe expired: %v, breaker %v", err, b.State())
		}
		<-hung
	})
}

func TestPeers11CancellationsAreNeutralToTheBreaker(t *testing.T) {
	b := breaker.Must(breaker.Config{ConsecutiveFailures: 3, WindowCalls: 10})
	r := Must("fixed(0s) attempts=2", WithBreaker(b))
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		_ = r.Do(ctx, func(ctx context.Context) error { cancel(); return ctx.Err() })
	}
	if b.State() != breaker.Closed || b.Counts().Failures != 0 {
		t.Errorf("breaker %v after ten cancellations, counts %+v", b.State(), b.Counts())
	}
}

func TestPeers12SmallThresholdsTrip(t *testing.T) {
	b := breaker.Must(breaker.Config{FailureRate: 0.004, WindowCalls: 250, MinCalls: 250})
	r := Must("fixed(0s)", WithBreaker(b))
	for i := range 250 {
		_ = r.Do(t.Context(), func(context.Context) error {
			if i == 249 {
				return errFlaky
			}
			return nil
		})
	}
	if b.State() != breaker.Open {
		t.Errorf("breaker %v after 1 failure of 250 at a threshold of 0.4 %%", b.State())
	}
}
