package retry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
)

// transient is a classifier that ignores marks: every error is transient.
func transient(error) Outcome { return Outcome{} }

func TestTheTotalTimeoutBoundsTheWaitForALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := func(context.Context) error { t.Error("an attempt was made"); return nil }
		busy, _ := limit.NewConcurrency(limit.ConcurrencyConfig{Max: 1, Queue: 10})
		busy.TryAcquire()
		b := breaker.Must(breaker.Config{ConsecutiveFailures: 1})
		start := time.Now()
		err := Must("fixed(0s) attempts=3 total-timeout=1s", WithConcurrency(busy), WithBreaker(b)).Do(t.Context(), never)
		wantError(t, err, StopTotalTimeout, 0, context.DeadlineExceeded)
		if took := time.Since(start); took != time.Second || b.State() != breaker.Closed {
			t.Errorf("took %v, want 1s; breaker %v", took, b.State())
		}
		rate, _ := limit.NewRate(limit.RateConfig{Rate: limit.Frequency{Events: 1, Per: time.Minute}, MaxWait: time.Hour})
		rate.Allow()
		start = time.Now()
		err = Must("fixed(0s) attempts=3 total-timeout=1s", WithRate(rate)).Do(t.Context(), never)
		if took := time.Since(start); !errors.Is(err, limit.ErrRate) || took != 0 {
			t.Errorf("a slot in a minute: %v after %v, want to be refused at once", err, took)
		}
	})
}

func TestNoAttemptStartsAfterTheTotalTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op, at := failing(9, errFlaky)
		err := Must("fixed(0s) attempts=9 total-timeout=1s", WithOnRetry(func(context.Context, Event) error {
			time.Sleep(5 * time.Second)
			return nil
		})).Do(t.Context(), op)
		wantError(t, err, StopTotalTimeout, 1, errFlaky)
		if len(*at) != 1 {
			t.Errorf("%d attempts, want 1", len(*at))
		}
	})
}

func TestLeavingTheLoopIsFinalWhateverAClassifierSays(t *testing.T) {
	b := breaker.Must(breaker.Config{ConsecutiveFailures: 3})
	for _, opts := range [][]Option{{WithClassifier(transient)}, {WithBreaker(b)}} {
		r := Must("fixed(0s) attempts=5", opts...)
		for range 3 {
			var err error
			n := 0
			for range r.Attempts(t.Context(), &err) {
				n++
				err = errFlaky
				if n == 2 || len(opts) > 0 && r.breaker != nil {
					break
				}
			}
			if err != errFlaky || n > 2 {
				t.Errorf("left with %v after %d turns", err, n)
			}
		}
	}
	if b.State() != breaker.Open {
		t.Errorf("breaker %v after three failures that left the loop, want open", b.State())
	}
}

func TestAStuckHedgeIsFinalWhateverAClassifierSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hedger(t, "fixed(0s) attempts=3 hedge=1s/100% attempt-timeout=3s", WithGrace(time.Second), WithClassifier(transient))
		var running, most atomic.Int32
		op := func(context.Context) (int, error) {
			n := running.Add(1)
			defer running.Add(-1)
			most.Store(max(most.Load(), n))
			if n == 1 {
				time.Sleep(2 * time.Second)
				return 0, errFlaky
			}
			time.Sleep(time.Hour) // ignores its context
			return 0, errFlaky
		}
		_, err := Hedged(t.Context(), h, op)
		wantError(t, err, StopStuck, 1, errFlaky)
		outer := Must("fixed(0s) attempts=3").Do(t.Context(), func(context.Context) error { return err })
		wantError(t, outer, StopStuck, 1, errFlaky)
		time.Sleep(2 * time.Hour)
		if most.Load() != 2 {
			t.Errorf("%d operations at once, want 2", most.Load())
		}
	})
}

func TestAPanicOfTheLoserDoesNotReplaceASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		h := hedger(t, "fixed(0s) hedge=1s", WithObserver(func(e Event) {
			if e.Kind == AttemptFailed {
				told = append(told, e.Err)
			}
		}))
		var calls atomic.Int32
		v, err := Hedged(t.Context(), h, func(ctx context.Context) (int, error) {
			if calls.Add(1) == 1 {
				time.Sleep(2 * time.Second)
				return 42, nil
			}
			<-ctx.Done()
			panic("boom")
		})
		if v != 42 || err != nil || len(told) != 1 {
			t.Errorf("%d, %v, observers were told %v", v, err, told)
		}
	})
}

func TestCancellationsAndAnswersDoNotDrainABucket(t *testing.T) {
	bucket, _ := limit.NewBudget(limit.Bucket(10, 0.1))
	r := Must("fixed(0s) attempts=3", WithBudget(bucket))
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		_ = r.Do(ctx, func(ctx context.Context) error { cancel(); return ctx.Err() })
		_ = r.Do(t.Context(), func(context.Context) error { return Permanent(errFlaky) })
	}
	if bucket.Tokens() != 10 {
		t.Errorf("%v tokens left of 10", bucket.Tokens())
	}
}

func TestAnOpenBreakerIsAlwaysTheCause(t *testing.T) {
	b := breaker.Must(breaker.Config{ConsecutiveFailures: 1}, breaker.WithName("db"))
	err := Must("fixed(1ms) attempts=3", WithBreaker(b)).Do(t.Context(), func(context.Context) error { return errFlaky })
	var open *breaker.OpenError
	if !errors.Is(err, breaker.ErrOpen) || !errors.As(err, &open) || open.For <= 0 || open.Name != "db" {
		t.Errorf("%v: cause %#v, want the open breaker", err, open)
	}
}

func TestMarksAddUpThroughWrapping(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("call: %w", err) }
	if o := OutcomeOf(After(wrap(Permanent(errFlaky)), time.Second)); o.Class != ClassPermanent || o.After != time.Second {
		t.Errorf("a delay on a permanent failure: %+v", o)
	}
	if o := OutcomeOf(Throttled(wrap(After(errFlaky, time.Minute)))); o.Class != ClassThrottled || o.After != time.Minute {
		t.Errorf("throttled with a delay: %+v", o)
	}
}

func TestNestedRunnersKeepTheServersDelay(t *testing.T) {
	inner := Must("fixed(0s) attempts=3")
	n := 0
	err := Must("fixed(1s) attempts=3").Do(t.Context(), func(ctx context.Context) error {
		return inner.Do(ctx, func(context.Context) error { n++; return After(errFlaky, time.Hour) })
	})
	wantError(t, err, StopServerWait, 1, errFlaky)
	if n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

func TestEndlessTimeoutsAreNone(t *testing.T) {
	for _, p := range []Policy{
		mustParse(t, "fixed(0s) attempt-timeout=100000d total-timeout=100000d"),
		{AttemptTimeout: math.MaxInt64},
		{TotalTimeout: math.MaxInt64},
	} {
		r, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Do(t.Context(), func(ctx context.Context) error {
			// real clock: a deadline that is there is in the past, or years away
			if d, ok := ctx.Deadline(); ok && time.Until(d) < 0 {
				t.Errorf("%v: a deadline at %v", p, d)
			}
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
}

func TestJitterDoesNotRefuseAServerDelayThatFits(t *testing.T) {
	for _, s := range []State{{Attempt: 1, Left: 11 * time.Second}, {Attempt: 1, Elapsed: 49 * time.Second}} {
		for _, u := range []uint64{0, math.MaxUint64 / 2, math.MaxUint64} {
			d := Decide(mustParse(t, "fixed(1s) attempts=3 total-timeout=1m"), s, Outcome{After: 10 * time.Second}, Gates{}, u)
			if d.Stop != 0 || d.Wait < 10*time.Second || d.Wait > 10500*time.Millisecond {
				t.Errorf("%+v: %+v, want a wait of 10s to 10.5s", s, d)
			}
		}
	}
}

func TestResumeForgetsAnOldDeadline(t *testing.T) {
	op, at := failing(1, errFlaky)
	if err := Must("fixed(0s) attempts=5").Resume(t.Context(), State{Attempt: 1, Left: -1}, op); err != nil || len(*at) != 2 {
		t.Errorf("%d attempts, %v", len(*at), err)
	}
}

func TestErrorsOfContextsAreFoundWhateverTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.ErrNoProgress)
		defer cancel()
		err := Must("fixed(0s) attempts=3").Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		for _, want := range []error{context.DeadlineExceeded, io.ErrNoProgress, StopDeadline} {
			if !errors.Is(err, want) {
				t.Errorf("%v is not %v", err, want)
			}
		}
	})
}
