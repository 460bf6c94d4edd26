package retry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
)

var errFlaky = errors.New("flaky")

// failing returns an operation that fails n times and then succeeds, and the
// times at which it was called.
//
// real clock: only tests in a bubble look at the times.
func failing(n int, err error) (op func(context.Context) error, at *[]time.Duration) {
	at = new([]time.Duration)
	var start time.Time
	return func(context.Context) error {
		if start.IsZero() {
			start = time.Now()
		}
		*at = append(*at, time.Since(start))
		if len(*at) <= n {
			return err
		}
		return nil
	}, at
}

func wantError(t *testing.T, err error, why Reason, attempts int, last error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T), want a *retry.Error", err, err)
	}
	if e.Reason != why || e.Attempts != attempts || !errors.Is(err, why) {
		t.Errorf("error %v: reason %v after %d, want %v after %d", err, e.Reason, e.Attempts, why, attempts)
	}
	if last != nil && !errors.Is(err, last) {
		t.Errorf("error %v does not wrap %v", err, last)
	}
	return e
}

func TestDoWaitsByThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op, at := failing(3, errFlaky)
		if err := Must("exponential(1s..32s) attempts=4").Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}
		if !reflect.DeepEqual(*at, want) {
			t.Errorf("attempts at %v, want %v", *at, want)
		}
	})
}

func TestDoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op, at := failing(99, errFlaky)
		start := time.Now()
		err := Must("fixed(1s) attempts=3", WithName("db")).Do(t.Context(), op)
		e := wantError(t, err, StopAttempts, 3, errFlaky)
		if want := "db: gave up after 3 attempts in 2s: attempts used up: flaky"; err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		if len(*at) != 3 || time.Since(start) != 2*time.Second {
			t.Errorf("%d attempts in %v, want 3 in 2s: no wait after the last", len(*at), time.Since(start))
		}
		want := []Failure{{1, errFlaky, time.Second, ByPolicy}, {2, errFlaky, time.Second, ByPolicy}, {3, errFlaky, 0, ByPolicy}}
		if got := e.History(); !reflect.DeepEqual(got, want) {
			t.Errorf("history %v, want %v", got, want)
		}
	})
}

func TestTheHistoryHasTheWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{1, 3, 4, 5, 8, 9, 10} {
			op, _ := failing(99, errFlaky)
			r := Must(fmt.Sprintf("linear(1s) attempts=%d", n), WithSchedule(func(s State, _ Outcome) time.Duration {
				return time.Duration(s.Attempt%2) * time.Minute // the policy's delay for an even attempt
			}))
			for _, f := range wantError(t, r.Do(t.Context(), op), StopAttempts, n, errFlaky).History() {
				want := Failure{f.Attempt, errFlaky, time.Duration(f.Attempt) * time.Second, ByPolicy}
				switch {
				case f.Attempt == n:
					want.Wait = 0
				case f.Attempt%2 == 1:
					want.Wait, want.By = time.Minute, BySchedule
				}
				if f != want {
					t.Errorf("%d attempts: history has %v, want %v", n, f, want)
				}
			}
		}
	})
}

func TestAResumedCallNumbersItsFailures(t *testing.T) {
	for _, n := range []int{8, 11, 20} {
		err := Must(fmt.Sprintf("fixed(0s) attempts=%d", n)).Resume(t.Context(), State{Attempt: 6}, func(context.Context) error { return errFlaky })
		list := wantError(t, err, StopAttempts, n, errFlaky).History()
		if first, last := list[0].Attempt, list[len(list)-1].Attempt; first != 7 || last != n {
			t.Errorf("%d attempts: the history begins with attempt %d and ends with %d, want 7 and %d", n, first, last, n)
		}
	}
}

func TestTheHistoryIsBounded(t *testing.T) {
	for _, n := range []int{1, 4, 5, 8, 9, 12, 100} {
		i := 0
		err := Must(fmt.Sprintf("fixed(0s) attempts=%d", n)).Do(t.Context(), func(context.Context) error {
			i++
			return fmt.Errorf("failure %d", i)
		})
		var got []string
		for _, f := range wantError(t, err, StopAttempts, n, nil).History() {
			if f.Err.Error() != fmt.Sprintf("failure %d", f.Attempt) {
				t.Errorf("attempt %d failed with %v", f.Attempt, f.Err)
			}
			got = append(got, fmt.Sprint(f.Attempt))
		}
		var want []string
		for k := 1; k <= n; k++ {
			if k <= 4 || k > n-4 {
				want = append(want, fmt.Sprint(k))
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("history of %d: %v, want %v", n, got, want)
		}
	}
}

func TestClassification(t *testing.T) {
	permanent := func(err error) error { return Permanent(err) }
	tests := []struct {
		name     string
		mark     func(error) error
		attempts int
	}{
		{"an unmarked error is retried", func(err error) error { return err }, 2},
		{"a permanent one is not", permanent, 1},
		{"nor one that wraps it", func(err error) error { return fmt.Errorf("get: %w", permanent(err)) }, 1},
		{"nor one that joins it", func(err error) error { return errors.Join(io.EOF, permanent(err)) }, 1},
		{"the outermost mark counts", func(err error) error { return Throttled(permanent(err)) }, 2},
		{"an error of another runner stays permanent", func(err error) error {
			return Must("fixed(0s)", WithClassifier(func(error) Outcome { return Outcome{Class: ClassPermanent} })).
				Do(context.Background(), func(context.Context) error { return err })
		}, 1},
		{"an error may implement Classified", func(err error) error { return classified{err} }, 1},
	}
	for _, tt := range tests {
		n := 0
		err := Must("fixed(0s) attempts=2").Do(t.Context(), func(context.Context) error { n++; return tt.mark(errFlaky) })
		if n != tt.attempts || !errors.Is(err, errFlaky) {
			t.Errorf("%s: %d attempts, want %d; error %v", tt.name, n, tt.attempts, err)
		}
	}
	if Permanent(nil) != nil || After(nil, 1) != nil || Throttled(nil) != nil {
		t.Error("a mark of nil is not nil")
	}
	if o := OutcomeOf(After(Throttled(errFlaky), time.Second)); o != (Outcome{Class: ClassThrottled, After: time.Second}) {
		t.Errorf("marks do not add up: %+v", o)
	}
	if o := OutcomeOf(After(errFlaky, -time.Second)); o != (Outcome{}) {
		t.Errorf("a negative delay states something: %+v", o)
	}
}

type classified struct{ error }

func (c classified) Unwrap() error       { return c.error }
func (classified) RetryOutcome() Outcome { return Outcome{Class: ClassPermanent} }

// final is a failure that must not be repeated.
type final struct{ error }

func (final) RetryOutcome() Outcome { return Outcome{Final: true} }

func TestClassifierDecides(t *testing.T) {
	n := 0
	r := Must("fixed(0s) attempts=5", WithClassifier(func(err error) Outcome {
		if errors.Is(err, io.EOF) {
			return Outcome{Class: ClassPermanent}
		}
		return Outcome{}
	}))
	err := r.Do(t.Context(), func(context.Context) error {
		if n++; n == 3 {
			return io.EOF
		}
		return Permanent(errFlaky) // the classifier outranks the mark
	})
	wantError(t, err, StopPermanent, 3, io.EOF)
}

func TestServerDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op, at := failing(1, After(errFlaky, 10*time.Second))
		if err := Must("fixed(1s) attempts=2", WithRand(func() uint64 { return 0 })).Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		if got := (*at)[1]; got != 10*time.Second {
			t.Errorf("second attempt after %v, want 10s", got)
		}
		op, at = failing(1, After(errFlaky, 121*time.Second))
		err := Must("fixed(1s) attempts=2").Do(t.Context(), op)
		wantError(t, err, StopServerWait, 1, errFlaky)
		if len(*at) != 1 {
			t.Errorf("%d attempts, want 1", len(*at))
		}
	})
}

func TestThrottledWaitsFromItsOwnBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op, at := failing(1, Throttled(errFlaky))
		if err := Must("exponential(50ms..20s) attempts=3 throttle-base=1s").Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		if (*at)[1] != time.Second {
			t.Errorf("second attempt after %v, want 1s", (*at)[1])
		}
	})
}

func TestScheduleOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op, at := failing(3, errFlaky)
		r := Must("fixed(1s..5s) attempts=4", WithSchedule(func(s State, _ Outcome) time.Duration {
			return []time.Duration{0, 3 * time.Second, time.Hour}[s.Attempt-1]
		}))
		if err := r.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, time.Second, 4 * time.Second, 9 * time.Second} // policy, schedule, cap
		if !reflect.DeepEqual(*at, want) {
			t.Errorf("attempts at %v, want %v", *at, want)
		}
	})
}

func TestAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		n := 0
		err := Must("fixed(1s) attempts=2 attempt-timeout=5s").Do(t.Context(), func(ctx context.Context) error {
			if d, ok := ctx.Deadline(); !ok || time.Until(d) != 5*time.Second {
				t.Errorf("deadline in %v, %v", time.Until(d), ok)
			}
			n++
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		e := wantError(t, err, StopAttempts, 2, context.DeadlineExceeded)
		var timeout *TimeoutError
		if !errors.As(e.Last, &timeout) || timeout.Limit != 5*time.Second || timeout.Total {
			t.Errorf("last failure %v, want a timeout of 5s", e.Last)
		}
		if !errors.As(cause, &timeout) || cause.Error() != "attempt timed out after 5s" {
			t.Errorf("cause %v", cause)
		}
		if e.Elapsed != 6*time.Second { // from the first failure on: 1s wait, 5s attempt
			t.Errorf("elapsed %v", e.Elapsed)
		}
	})
}

func TestASuccessAfterItsTimeoutIsASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := Must("fixed(1s) attempts=2 attempt-timeout=5s").Do(ctx, func(context.Context) error {
			time.Sleep(time.Minute)
			cancel()
			return nil
		})
		if err != nil {
			t.Errorf("error %v", err)
		}
	})
}

func TestTotalTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		n := 0
		err := Must("fixed(1s) attempts=unlimited total-timeout=10s").Do(t.Context(), func(ctx context.Context) error {
			n++
			select {
			case <-time.After(4 * time.Second):
				return errFlaky
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		e := wantError(t, err, StopTotalTimeout, 2, errFlaky)
		// 4s + 1s + 4s = 9s, and a wait of 1s would end at the timeout.
		if n != 2 || time.Since(start) != 9*time.Second || e.Elapsed != 9*time.Second {
			t.Errorf("%d attempts in %v, elapsed %v", n, time.Since(start), e.Elapsed)
		}
		start = time.Now()
		err = Must("fixed(1s) attempts=unlimited total-timeout=10s").Do(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		e = wantError(t, err, StopTotalTimeout, 1, context.DeadlineExceeded)
		var timeout *TimeoutError
		if !errors.As(e.Last, &timeout) || !timeout.Total || timeout.Limit != 10*time.Second {
			t.Errorf("last failure %#v, want the total timeout of 10s", e.Last)
		}
		if time.Since(start) != 10*time.Second {
			t.Errorf("took %v, want 10s", time.Since(start))
		}
	})
}

func TestTheEarliestDeadlineCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tests := []struct {
			policy string
			caller time.Duration
			want   time.Duration
			why    Reason
		}{
			{"fixed(1s) attempts=1 attempt-timeout=5s total-timeout=8s", 20 * time.Second, 5 * time.Second, StopAttempts},
			{"fixed(1s) attempts=1 attempt-timeout=8s total-timeout=5s", 20 * time.Second, 5 * time.Second, StopAttempts},
			{"fixed(1s) attempts=9 attempt-timeout=8s total-timeout=9s", 5 * time.Second, 5 * time.Second, StopDeadline},
			{"fixed(1s) attempts=9", 5 * time.Second, 5 * time.Second, StopDeadline},
		}
		for _, tt := range tests {
			ctx, cancel := context.WithTimeout(t.Context(), tt.caller)
			start := time.Now()
			err := Must(tt.policy).Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			cancel()
			wantError(t, err, tt.why, 1, context.DeadlineExceeded)
			if took := time.Since(start); took != tt.want {
				t.Errorf("%s with %v: took %v, want %v", tt.policy, tt.caller, took, tt.want)
			}
		}
	})
}

func TestCancellationEndsAWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(why) })
		start := time.Now()
		op, _ := failing(9, errFlaky)
		err := Must("fixed(1h) attempts=3").Do(ctx, op)
		e := wantError(t, err, StopCanceled, 1, errFlaky)
		if !errors.Is(err, why) || !errors.Is(e.Cause, why) || time.Since(start) != 3*time.Second {
			t.Errorf("after %v: %v, cause %v", time.Since(start), err, e.Cause)
		}
		if want := "gave up after 1 attempt in 3s: canceled: shutting down: flaky"; err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
	})
}

func TestACancellationThatIsNotTheCallersIsRetried(t *testing.T) {
	op, at := failing(1, context.Canceled) // of a context that the operation made itself
	if err := Must("fixed(0s) attempts=2").Do(t.Context(), op); err != nil || len(*at) != 2 {
		t.Errorf("%d attempts, %v", len(*at), err)
	}
}

func TestOnRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []Event
		var told []Event
		r := Must("exponential(1s..9s) attempts=4",
			WithOnRetry(func(_ context.Context, e Event) error {
				told = append(told, e)
				switch e.Attempt {
				case 1:
					return io.ErrClosedPipe
				case 2:
					panic("at the hook")
				}
				time.Sleep(time.Second) // part of the wait of 4s
				return nil
			}),
			WithObserver(func(e Event) { events = append(events, e) }))
		start := time.Now()
		op, _ := failing(9, errFlaky)
		wantError(t, r.Do(t.Context(), op), StopAttempts, 4, errFlaky)
		if time.Since(start) != 7*time.Second {
			t.Errorf("took %v, want 7s", time.Since(start))
		}
		if len(told) != 3 || told[2].Kind != Waiting || told[2].Delay != 4*time.Second || !errors.Is(told[2].Err, errFlaky) {
			t.Errorf("the hook received %+v", told)
		}
		var failed []string
		for _, e := range events {
			if e.Kind == HookFailed {
				failed = append(failed, e.Err.Error())
			}
		}
		if got := strings.Join(failed, ", "); got != "OnRetry: io: read/write on closed pipe, OnRetry: panic: at the hook" {
			t.Errorf("observers were told %q", got)
		}
	})
}

func TestEveryHookIsCalled(t *testing.T) {
	var got []string
	note := func(name string) Option {
		return WithOnRetry(func(context.Context, Event) error { got = append(got, name); return nil })
	}
	op, _ := failing(1, errFlaky)
	if err := Must("fixed(0s) attempts=2", note("a"), note("b")).Do(t.Context(), op); err != nil || strings.Join(got, "") != "ab" {
		t.Errorf("%v, hooks %v, want both in order", err, got)
	}
}

func TestErrorTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		flaky := func(context.Context) error { return errFlaky }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tests := []struct {
			policy string
			op     func(context.Context) error
			want   bool
		}{
			{"fixed(0s) attempts=2", flaky, false},
			{"fixed(2m) attempts=2", flaky, true},
			{"fixed(0s) attempts=2 attempt-timeout=1s", hang, true},
			{"fixed(2s) attempts=9 total-timeout=1s", flaky, true},
			{"fixed(0s) attempts=2 total-timeout=1s", hang, true},
		}
		for _, tt := range tests {
			var e *Error
			if err := Must(tt.policy).Do(ctx, tt.op); !errors.As(err, &e) || e.Timeout() != tt.want {
				t.Errorf("%s: %v, Timeout() = %v, want %v", tt.policy, err, e.Timeout(), tt.want)
			}
		}
	})
}

func TestAPanicOfAnObserverOrClassifierChangesNothing(t *testing.T) {
	var kinds []string
	r := Must("fixed(0s) attempts=2",
		WithObserver(func(Event) { panic("at the observer") }),
		WithObserver(func(e Event) { kinds = append(kinds, e.Kind.String()) }),
		WithSchedule(func(State, Outcome) time.Duration { panic("at the schedule") }),
		WithClassifier(func(error) Outcome { panic("at the classifier") }))
	op, at := failing(1, errFlaky)
	if err := r.Do(t.Context(), op); err != nil || len(*at) != 2 {
		t.Errorf("%d attempts, %v", len(*at), err)
	}
	if !strings.Contains(strings.Join(kinds, " "), "hook-failed") {
		t.Errorf("the other observer received %v", kinds)
	}
}

func TestAPanicOfTheOperationGoesOnAndFreesEverything(t *testing.T) {
	b := breaker.Must(breaker.Config{ConsecutiveFailures: 1, WindowCalls: 10})
	c, err := limit.NewConcurrency(limit.ConcurrencyConfig{Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := Must("fixed(0s) attempts=2 attempt-timeout=1m budget=ratio(0.1)", WithBreaker(b), WithConcurrency(c))
	var attempt context.Context
	func() {
		defer func() {
			if v := recover(); v != "boom" {
				t.Errorf("recovered %v", v)
			}
		}()
		_ = r.Do(t.Context(), func(ctx context.Context) error { attempt = ctx; panic("boom") })
	}()
	if b.State() != breaker.Open || c.Stats().InUse != 0 || attempt.Err() == nil {
		t.Errorf("breaker %v, in use %d, context %v", b.State(), c.Stats().InUse, attempt.Err())
	}
}

func TestBudget(t *testing.T) {
	shared, err := limit.NewBudget(limit.Refund(1, 0.1, 2))
	if err != nil {
		t.Fatal(err)
	}
	r := Must("fixed(0s) attempts=9", WithBudget(shared))
	op, at := failing(99, errFlaky)
	wantError(t, r.Do(t.Context(), op), StopBudget, 3, errFlaky)
	if len(*at) != 3 || shared.Tokens() != 0 {
		t.Errorf("%d attempts, %v tokens left; want 3 and none", len(*at), shared.Tokens())
	}
	for range 10 {
		if err := r.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if shared.Tokens() != 1 {
		t.Errorf("%v tokens after ten successes, want 1", shared.Tokens())
	}
	op, _ = failing(1, errFlaky)
	if err := r.Do(t.Context(), op); err != nil || shared.Tokens() != 1 {
		t.Errorf("a retry that succeeded: %v, %v tokens, want its token back", err, shared.Tokens())
	}
	op, _ = failing(9, Permanent(errFlaky))
	_ = r.Do(t.Context(), op)
	if shared.Tokens() != 1 {
		t.Errorf("a permanent failure cost %v tokens", 1-shared.Tokens())
	}
	own := Must("fixed(0s) attempts=9 budget=refund(1,0.1,3)")
	op, _ = failing(99, errFlaky)
	wantError(t, own.Do(t.Context(), op), StopBudget, 4, errFlaky)
}

func TestACanceledWaitReturnsItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := limit.NewBudget(limit.Refund(1, 0.1, 5))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		time.AfterFunc(time.Second, cancel)
		op, _ := failing(9, errFlaky)
		wantError(t, Must("fixed(1m) attempts=9", WithBudget(b)).Do(ctx, op), StopCanceled, 1, errFlaky)
		if b.Tokens() != 5 {
			t.Errorf("%v tokens, want 5: the retry never started", b.Tokens())
		}
	})
}

func TestNobodyWaitsForALimitBeforeAnOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate, err := limit.NewRate(limit.RateConfig{Rate: limit.Frequency{Events: 1, Per: time.Second}, MaxWait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		b := breaker.Must(breaker.Config{}, breaker.WithName("db"))
		if err := b.Force(breaker.ForcedOpen); err != nil {
			t.Fatal(err)
		}
		r := Must("fixed(0s)", WithBreaker(b), WithRate(rate))
		start := time.Now()
		for range 3 {
			err := r.Do(t.Context(), func(context.Context) error { t.Error("an attempt was made"); return nil })
			wantError(t, err, StopBreaker, 0, breaker.ErrOpen)
		}
		if took := time.Since(start); took != 0 || !rate.Allow() {
			t.Errorf("took %v, want no wait and no slot of the rate", took)
		}
	})
}

func TestARefusedRetryReturnsItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget, _ := limit.NewBudget(limit.Refund(1, 0.1, 5))
		b := breaker.Must(breaker.Config{})
		time.AfterFunc(time.Second, func() { _ = b.Force(breaker.ForcedOpen) }) // during the wait
		op, at := failing(9, errFlaky)
		err := Must("fixed(1m) attempts=9", WithBudget(budget), WithBreaker(b)).Do(t.Context(), op)
		e := wantError(t, err, StopBreaker, 1, errFlaky)
		if !errors.Is(e.Cause, breaker.ErrOpen) || len(*at) != 1 || budget.Tokens() != 5 {
			t.Errorf("cause %v, %d attempts, %v tokens, want the breaker, 1 and 5", e.Cause, len(*at), budget.Tokens())
		}
	})
}

func TestLimits(t *testing.T) {
	c, _ := limit.NewConcurrency(limit.ConcurrencyConfig{Max: 1})
	r := Must("fixed(0s) attempts=3", WithConcurrency(c))
	err := r.Do(t.Context(), func(ctx context.Context) error {
		inner := r.Do(ctx, func(context.Context) error { return nil })
		wantError(t, inner, StopLimit, 0, limit.ErrQueueFull)
		return nil
	})
	if err != nil || c.Stats().InUse != 0 {
		t.Errorf("%v, %d in use", err, c.Stats().InUse)
	}

	synctest.Test(t, func(t *testing.T) {
		rate, err := limit.NewRate(limit.RateConfig{Rate: limit.Frequency{Events: 1, Per: time.Second}, MaxWait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		op, at := failing(2, errFlaky)
		if err := Must("fixed(0s) attempts=3", WithRate(rate)).Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		if got := (*at)[2]; got != 2*time.Second {
			t.Errorf("third attempt after %v, want 2s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err = Must("fixed(0s) attempts=3", WithRate(rate)).Do(ctx, op)
		wantError(t, err, StopLimit, 0, limit.ErrRate)
	})

	a, _ := limit.NewAdaptive(limit.AdaptiveConfig{Max: 1})
	r = Must("fixed(0s) attempts=2", WithAdaptive(a))
	op, _ := failing(1, Throttled(errFlaky))
	if err := r.Do(t.Context(), op); err != nil || a.Stats().InUse != 0 {
		t.Errorf("adaptive: %v, %d in use", err, a.Stats().InUse)
	}
}

func TestBreakerResults(t *testing.T) {
	config := breaker.Config{ConsecutiveFailures: 2, WindowCalls: 10}
	tests := []struct {
		name string
		err  error
		want breaker.State
	}{
		{"failures open it", errFlaky, breaker.Open},
		{"permanent failures are answers", Permanent(errFlaky), breaker.Closed},
		{"failures that must not be repeated are failures", final{errFlaky}, breaker.Open},
	}
	for _, tt := range tests {
		b := breaker.Must(config)
		r := Must("fixed(0s)", WithBreaker(b))
		for range 5 {
			_ = r.Do(t.Context(), func(context.Context) error { return tt.err })
		}
		if b.State() != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, b.State(), tt.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := breaker.Must(config)
		r := Must("fixed(0s)", WithBreaker(b))
		for range 5 { // deadlines that pass count as failures
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = r.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			cancel()
		}
		if b.State() != breaker.Open {
			t.Errorf("after deadlines that passed: %v, want open", b.State())
		}
	})
}

func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved State
		ctx, cancel := context.WithCancel(t.Context())
		r := Must("exponential(1s..32s) attempts=4 total-timeout=1m", WithOnRetry(func(_ context.Context, e Event) error {
			if saved = e.State(); e.Attempt == 2 {
				cancel() // as if the process had been killed
			}
			return nil
		}))
		op, _ := failing(9, errFlaky)
		_ = r.Do(ctx, op)
		if want := (State{Attempt: 2, Prev: 2 * time.Second, Elapsed: time.Second}); saved != want {
			t.Fatalf("saved %+v, want %+v", saved, want)
		}
		op, at := failing(9, errFlaky)
		err := r.Resume(t.Context(), saved, op)
		e := wantError(t, err, StopAttempts, 4, errFlaky)
		if want := []time.Duration{0, 4 * time.Second}; !reflect.DeepEqual(*at, want) || e.Elapsed != 5*time.Second {
			t.Errorf("went on at %v, want %v; elapsed %v", *at, want, e.Elapsed)
		}
	})
	never := func(context.Context) error { t.Error("an attempt was made"); return nil }
	wantError(t, Must("fixed(0s) attempts=3").Resume(t.Context(), State{Attempt: 3}, never), StopAttempts, 3, nil)
	wantError(t, Must("fixed(0s) attempts=3 total-timeout=1m").Resume(t.Context(), State{Attempt: 1, Elapsed: time.Minute}, never), StopTotalTimeout, 1, nil)
	if err := Must("fixed(0s)").Resume(t.Context(), State{Attempt: -1}, func(context.Context) error { return nil }); err == nil {
		t.Error("Resume of a negative attempt succeeded")
	}
}

func TestSeedsReproduceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := func(seed uint64) []time.Duration {
			op, at := failing(5, errFlaky)
			if err := Must("exponential(1s..32s) jitter=full attempts=6", WithSeed(seed)).Do(t.Context(), op); err != nil {
				t.Fatal(err)
			}
			return *at
		}
		if a, b := run(7), run(7); !reflect.DeepEqual(a, b) {
			t.Errorf("one seed gave %v and %v", a, b)
		}
		if a, b := run(7), run(8); reflect.DeepEqual(a, b) {
			t.Errorf("two seeds gave %v", a)
		}
	})
}

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "elapsed" {
			return slog.Attr{}
		}
		return a
	}}))
	synctest.Test(t, func(t *testing.T) {
		op, _ := failing(9, errFlaky)
		_ = Must("fixed(1s) attempts=2", WithLogger(log), WithName("api")).Do(t.Context(), op)
		_ = Must("fixed(1s) attempts=2", WithLogger(log)).Do(t.Context(), func(context.Context) error { return nil })
	})
	want := `level=WARN msg=retrying name=api attempt=1 attempts=2 delay=1s delay_by=policy error=flaky
level=ERROR msg="gave up" name=api attempt=2 attempts=2 reason=attempts error="api: gave up after 2 attempts in 1s: attempts used up: flaky"
`
	if out.String() != want {
		t.Errorf("logged\n%swant\n%s", out.String(), want)
	}
}

func TestLoggerReportsAnOpenBreakerOnce(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	wantLines := func(when string, failures, debug int) {
		t.Helper()
		text := out.String()
		out.Reset()
		if e, d := strings.Count(text, "level=ERROR"), strings.Count(text, "level=DEBUG"); e != failures || d != debug {
			t.Errorf("%s: %d lines at ERROR and %d at DEBUG, want %d and %d:\n%s", when, e, d, failures, debug, text)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := breaker.Must(breaker.Config{ConsecutiveFailures: 1, Open: backoff.Schedule{Kind: backoff.Fixed, Base: 10 * time.Second}})
		r := Must("fixed(0s) attempts=1", WithLogger(log), WithBreaker(b))
		call := func(times int) {
			for range times {
				_ = r.Do(t.Context(), func(context.Context) error { return errFlaky })
			}
		}
		call(1)
		wantLines("a failure opens the breaker", 1, 0)
		call(100)
		wantLines("100 calls are rejected", 1, 99)
		time.Sleep(11 * time.Second)
		call(1)
		wantLines("the probe fails", 1, 0)
		call(100)
		wantLines("100 calls are rejected again", 1, 99)
		if err := b.Force(breaker.ForcedOpen); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		call(100)
		wantLines("the breaker is forced open", 1, 99)
		time.Sleep(rejectionsFor)
		call(2)
		wantLines("it is still open", 1, 1)
	})
}

func TestLoggerReportsARejectionBesideAProbe(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	synctest.Test(t, func(t *testing.T) {
		b := breaker.Must(breaker.Config{ConsecutiveFailures: 1, Open: backoff.Schedule{Kind: backoff.Fixed, Base: 10 * time.Second}})
		r := Must("fixed(0s) attempts=1", WithLogger(log), WithBreaker(b))
		fail := func() { _ = r.Do(t.Context(), func(context.Context) error { return errFlaky }) }
		// levels returns the levels of the lines that three calls beside a probe log.
		levels := func() (list []string) {
			end, ended := make(chan struct{}), make(chan struct{})
			go func() {
				_ = r.Do(t.Context(), func(context.Context) error { <-end; return nil })
				close(ended)
			}()
			synctest.Wait()
			out.Reset()
			for range 3 {
				fail()
			}
			for line := range strings.Lines(out.String()) {
				level, _, _ := strings.Cut(line[strings.Index(line, "level=")+len("level="):], " ")
				list = append(list, level)
			}
			close(end)
			<-ended
			return list
		}
		fail()
		fail() // is rejected
		time.Sleep(11 * time.Second)
		if got := levels(); !slices.Equal(got, []string{"DEBUG", "DEBUG", "DEBUG"}) {
			t.Errorf("beside the probe of the opening that was logged: %v", got)
		}
		time.Sleep(time.Hour)
		fail() // opens the breaker, which the probe has closed
		time.Sleep(11 * time.Second)
		if got := levels(); !slices.Equal(got, []string{"ERROR", "DEBUG", "DEBUG"}) {
			t.Errorf("beside the probe of a later opening: %v", got)
		}
	})
}

func TestWrongUseIsAnError(t *testing.T) {
	ctx := t.Context()
	nop := func(context.Context) error { return nil }
	var unset *Runner
	var zero Runner
	r := Must("fixed(0s)")
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"nil operation", r.Do(ctx, nil), "operation: nil"},
		{"nil operation with gates", Must("fixed(0s) attempt-timeout=1s").Do(ctx, nil), "operation: nil"},
		{"nil operation of Value", func() error { _, err := Value[int](ctx, r, nil); return err }(), "operation: nil"},
		{"zero runner", zero.Do(ctx, nop), "not made by New"},
		{"nil runner", unset.Do(ctx, nop), "not made by New"},
		{"nil runner of Value", func() error {
			_, err := Value(ctx, unset, func(context.Context) (int, error) { return 0, nil })
			return err
		}(), "not made by New"},
		{"nil context", r.Do(nil, nop), "context: nil"},                                               //nolint:staticcheck // on purpose
		{"nil context with gates", Must("fixed(0s) attempt-timeout=1s").Do(nil, nop), "context: nil"}, //nolint:staticcheck // on purpose
		{"nil runner of Attempts", func() (err error) {
			for range unset.Attempts(ctx, &err) {
				return nil
			}
			return err
		}(), "not made by New"},
	}
	for _, tt := range tests {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", tt.name, tt.err, tt.want)
		}
	}
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "Attempts: err is nil") {
			t.Errorf("Attempts(ctx, nil) panicked with %q, want the name of the argument in it", text)
		}
	}()
	r.Attempts(ctx, nil)
}

func TestNewRefuses(t *testing.T) {
	b, _ := limit.NewBudget(limit.Ratio(0.5))
	tests := []struct {
		name string
		p    Policy
		opts []Option
		want string
	}{
		{"an invalid policy", Policy{Attempts: -5}, nil, "attempts:"},
		{"a hedge", mustParse(t, "fixed(0s) hedge=p95"), nil, "hedge: a Runner can't honour hedge=p95"},
		{"reset-after", mustParse(t, "fixed(0s) reset-after=1m"), nil, "reset-after: a Runner can't honour reset-after=1m"},
		{"a nil option", Policy{}, []Option{nil}, "option: nil"},
		{"a nil breaker", Policy{}, []Option{WithBreaker(nil)}, "WithBreaker: nil"},
		{"a nil budget", Policy{}, []Option{WithBudget(nil)}, "WithBudget: nil"},
		{"a nil limit", Policy{}, []Option{WithConcurrency(nil), WithAdaptive(nil), WithRate(nil)}, "WithConcurrency: nil; WithAdaptive: nil; WithRate: nil"},
		{"a nil function", Policy{}, []Option{WithClassifier(nil), WithSchedule(nil), WithOnRetry(nil), WithObserver(nil), WithLogger(nil), WithRand(nil)}, "WithRand: nil"},
		{"another budget than the policy's", mustParse(t, "fixed(0s) budget=ratio(0.2)"), []Option{WithBudget(b)}, "budget: the policy has ratio(0.2), but the budget of WithBudget is ratio(0.5)"},
		{"a grace", Policy{}, []Option{WithGrace(1)}, "WithGrace:"},
	}
	for _, tt := range tests {
		if _, err := New(tt.p, tt.opts...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: New = %v, want %q in it", tt.name, err, tt.want)
		}
	}
	for _, text := range []string{"nonsense", "fixed(0s) hedge=1s"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Must(%q) did not panic", text)
				}
			}()
			Must(text)
		}()
	}
}

func TestMustTakesAPolicyOrItsText(t *testing.T) {
	const text = "fixed(1s) attempts=2"
	if a, b := Must(text).Policy(), Must(mustParse(t, text)).Policy(); a != b {
		t.Errorf("Must of the text has %v, of the policy %v", a, b)
	}
}

func TestTheErrorOfNewUnwraps(t *testing.T) {
	option := func(*settings) error { return errFlaky }
	_, err := New(Policy{Attempts: -2}, option)
	if !errors.Is(err, errFlaky) || strings.Contains(err.Error(), "\n") {
		t.Errorf("New = %q, want one line that unwraps to the option's error", err)
	}
}

func TestARunnerIsSharedByGoroutines(t *testing.T) {
	b := breaker.Must(breaker.Config{})
	r := Must("fixed(0s) attempts=3 attempt-timeout=1m budget=ratio(0.5)", WithBreaker(b), WithObserver(func(Event) {}), WithSeed(1))
	var wg sync.WaitGroup
	var calls atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 100 {
				op, _ := failing(1, errFlaky)
				_ = r.Do(t.Context(), func(ctx context.Context) error { calls.Add(1); return op(ctx) })
			}
		})
	}
	wg.Wait()
	if calls.Load() < 800 {
		t.Errorf("%d attempts", calls.Load())
	}
}

func TestContinueCountsTheAttemptThatWasMade(t *testing.T) {
	t.Parallel()
	first := errors.New("first")
	for _, tt := range []struct {
		name string
		opts []Option
	}{
		{"nothing stands before an attempt", nil},
		{"an observer", []Option{WithObserver(func(Event) {})}},
	} {
		r := Must("fixed(0s) attempts=3", tt.opts...)
		made := 0
		err := r.Continue(t.Context(), first, func(context.Context) error { made++; return errors.New("again") })
		e, ok := errors.AsType[*Error](err)
		if !ok || made != 2 || e.Attempts != 3 || e.Reason != StopAttempts || !errors.Is(e.History()[0].Err, first) {
			t.Errorf("%s: Continue = %v after %d more, want the first failure among three", tt.name, err, made)
		}
		if err := r.Continue(t.Context(), first, func(context.Context) error { return nil }); err != nil {
			t.Errorf("%s: Continue = %v, want a success", tt.name, err)
		}
		if err := r.Continue(t.Context(), nil, nil); err != nil {
			t.Errorf("%s: Continue after a success = %v", tt.name, err)
		}
		if err := r.Continue(t.Context(), first, nil); err == nil {
			t.Errorf("%s: Continue without an operation = nil", tt.name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Must("fixed(0s) attempts=3").Continue(ctx, first, func(context.Context) error { return nil })
	if e, ok := errors.AsType[*Error](err); !ok || e.Reason != StopCanceled || e.Attempts != 1 || !errors.Is(err, first) {
		t.Errorf("Continue = %v, want a cancellation that keeps the failure", err)
	}
}

// TestDoAndValueAreInlined fails if the compiler no longer inlines Do or Value into their
// callers. A frame of an inlined call has no Func.
func TestDoAndValueAreInlined(t *testing.T) {
	r, ctx, pcs := Must("fixed(0s) attempts=2"), t.Context(), make([]uintptr, 16)
	for name, call := range map[string]func() (stack []uintptr){
		"(*Runner).Do": func() (stack []uintptr) {
			_ = r.Do(ctx, func(context.Context) error {
				stack = pcs[:runtime.Callers(1, pcs)]
				return nil
			})
			return stack
		},
		"Value[...]": func() []uintptr {
			stack, _ := Value(ctx, r, func(context.Context) ([]uintptr, error) {
				return pcs[:runtime.Callers(1, pcs)], nil
			})
			return stack
		},
	} {
		found := false
		for frames, more := runtime.CallersFrames(call()), true; more; {
			var f runtime.Frame
			if f, more = frames.Next(); strings.HasSuffix(f.Function, "retry."+name) {
				found = true
				if f.Func != nil {
					t.Errorf("%s is called, want it inlined", f.Function)
				}
			}
		}
		if !found {
			t.Errorf("no frame of %s on the stack of the operation", name)
		}
	}
}

func TestValueReturnsTheResultOfTheLastAttempt(t *testing.T) {
	failed := errors.New("failed")
	for _, policy := range []string{"fixed(0s) attempts=1", "fixed(0s) attempts=3", "fixed(0s) attempts=3 attempt-timeout=1s"} {
		r, made := Must(policy), 0
		v, err := Value(t.Context(), r, func(context.Context) (int, error) { made++; return made, failed })
		if v != r.Policy().Attempts || made != v || !errors.Is(err, failed) {
			t.Errorf("%s: Value = %d, %v after %d attempts, want the result of the last of %d", policy, v, err, made, r.Policy().Attempts)
		}
	}
	v, err := Value[int](t.Context(), Must("fixed(0s) attempts=3"), nil)
	if v != 0 || err == nil || err.Error() != "retry: operation: nil" {
		t.Errorf("Value without an operation = %d, %v", v, err)
	}
}

// TestARunnerWithoutADelayDecidesLikeAnObservedOne compares the shorter path of runners
// that do not wait with the path of runners that tell observers about each failure.
func TestARunnerWithoutADelayDecidesLikeAnObservedOne(t *testing.T) {
	plain, stated := errors.New("plain"), Permanent(errors.New("permanent"))
	type calls = []error // what the attempts return, and then nil
	for name, c := range map[string]struct {
		policy   string
		calls    calls
		deadline time.Duration
		cancelAt int // attempt that cancels the context; 0 means none
	}{
		"one attempt":               {"fixed(0s) attempts=1", calls{plain}, 0, 0},
		"attempts used up":          {"fixed(0s) attempts=4", calls{plain, plain, plain, plain, plain}, 0, 0},
		"more than a history keeps": {"fixed(0s) attempts=12", slices.Repeat(calls{plain}, 12), 0, 0},
		"success at the last":       {"fixed(0s) attempts=4", calls{plain, plain, plain}, 0, 0},
		"unlimited":                 {"fixed(0s) attempts=unlimited", slices.Repeat(calls{plain}, 100), 0, 0},
		"a permanent failure":       {"fixed(0s) attempts=4", calls{plain, stated, plain}, 0, 0},
		"a deadline":                {"fixed(0s) attempts=4", calls{plain, plain, plain, plain}, time.Hour, 0},
		"a cancellation":            {"fixed(0s) attempts=4", calls{plain, plain, plain, plain}, 0, 2},
		"an attempt timeout":        {"fixed(0s) attempts=3 attempt-timeout=1s", calls{plain, plain, plain}, 0, 0},
		"canceled at the last":      {"fixed(0s) attempts=2", calls{plain, plain}, 0, 2},
		"a delay":                   {"exponential(1s..10s) attempts=3", calls{plain, plain, plain}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := func(opts ...Option) (made int, err error) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if c.deadline > 0 {
						ctx, cancel = context.WithTimeout(ctx, c.deadline)
						defer cancel()
					}
					err = Must(c.policy, opts...).Do(ctx, func(context.Context) error {
						if made++; made == c.cancelAt {
							cancel()
						}
						if made <= len(c.calls) {
							return c.calls[made-1]
						}
						return nil
					})
					return made, err
				}
				got, gotErr := run()
				want, wantErr := run(WithObserver(func(Event) {}))
				if got != want || !reflect.DeepEqual(gotErr, wantErr) {
					t.Errorf("%d attempts, %+v; observed: %d attempts, %+v", got, gotErr, want, wantErr)
				}
			})
		})
	}
}
