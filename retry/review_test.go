package retry_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// tryNow is a review that returns an immediate retry after every failure.
func tryNow(_ context.Context, r retry.Review) retry.Decision {
	return retry.Decision{By: retry.BySchedule, Prev: r.Decision.Prev}
}

func TestReviewSeesTheDecisionAndItsDraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []retry.Review
		draws := 0
		failed := retry.After(errors.New("busy"), 10*time.Second)
		r := retry.Must("exponential(1s..1m) jitter=full attempts=3",
			retry.WithRand(func() uint64 { draws++; return 1 << 63 }),
			retry.WithReview(func(_ context.Context, r retry.Review) retry.Decision {
				got = append(got, r)
				return r.Decision
			}))
		began := time.Now()
		err := r.Do(t.Context(), func(context.Context) error { return failed })
		if !errors.Is(err, retry.StopAttempts) || len(got) != 3 || draws != 3 {
			t.Fatalf("Do = %v after %d reviews and %d draws, want 3 of each", err, len(got), draws)
		}
		first, last := got[0], got[2]
		if first.State.Attempt != 1 || first.Outcome.After != 10*time.Second || first.Err != failed { //nolint:errorlint // the very value
			t.Errorf("the review saw %+v", first)
		}
		if want := (retry.Decision{By: retry.ByServer, Wait: 11 * time.Second}); first.Decision != want || first.PolicyWait != 500*time.Millisecond {
			t.Errorf("the decision is %+v, without the server %v, want %+v and 500ms", first.Decision, first.PolicyWait, want)
		}
		if last.Decision.Stop != retry.StopAttempts || last.PolicyWait != 2*time.Second || time.Since(began) != 22*time.Second {
			t.Errorf("at the end: %+v after %v", last, time.Since(began))
		}
		if d := first.Decide(retry.Outcome{}); d.Wait != first.PolicyWait || d.By != retry.ByPolicy {
			t.Errorf("Decide = %+v, want the policy's wait from the same draw", d)
		}
		if d := first.Decide(retry.Outcome{After: time.Hour}); d.Stop != retry.StopServerWait || d.Wait != time.Hour {
			t.Errorf("Decide = %+v, want a stop that knows the wait", d)
		}
	})
}

func TestReviewChangesTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := errors.New("busy")
		for _, tt := range []struct {
			name     string
			failure  error
			policy   string
			review   func(context.Context, retry.Review) retry.Decision
			reason   retry.Reason
			attempts int
			waited   time.Duration
		}{
			{"a wait at once", busy, "fixed(1h) attempts=3", tryNow, retry.StopAttempts, 3, 0},
			{"another server after a permanent failure", retry.Permanent(busy), "fixed(1h) attempts=3", tryNow, retry.StopAttempts, 3, 0},
			{"another server after a wait that is too long", retry.After(busy, 24*time.Hour), "fixed(1h) attempts=3", tryNow, retry.StopAttempts, 3, 0},
			{"a stop with its reason", busy, "fixed(1h) attempts=3", func(context.Context, retry.Review) retry.Decision {
				return retry.Decision{Stop: retry.StopBudget}
			}, retry.StopBudget, 1, 0},
			{"a wait past the total timeout", busy, "fixed(1s) attempts=9 total-timeout=1m", func(context.Context, retry.Review) retry.Decision {
				return retry.Decision{Wait: time.Hour}
			}, retry.StopTotalTimeout, 1, 0},
			{"a review that takes the time that was left", busy, "fixed(1s) attempts=9 total-timeout=1m", func(context.Context, retry.Review) retry.Decision {
				time.Sleep(2 * time.Minute)
				return retry.Decision{}
			}, retry.StopTotalTimeout, 1, 2 * time.Minute},
			{"a negative wait", busy, "fixed(1s) attempts=2", func(context.Context, retry.Review) retry.Decision {
				return retry.Decision{Wait: -time.Hour, Prev: -1}
			}, retry.StopAttempts, 2, 0},
			{"a panic", busy, "fixed(1s) attempts=2", func(context.Context, retry.Review) retry.Decision { panic("boom") }, retry.StopAttempts, 2, time.Second},
		} {
			r := retry.Must(tt.policy, retry.WithReview(tt.review))
			began := time.Now()
			err := r.Do(t.Context(), func(context.Context) error { return tt.failure })
			e, ok := errors.AsType[*retry.Error](err)
			if !ok || e.Reason != tt.reason || e.Attempts != tt.attempts || time.Since(began) != tt.waited {
				t.Errorf("%s: Do = %v after %v, want %v after %d attempts in %v", tt.name, err, time.Since(began), tt.reason, tt.attempts, tt.waited)
			}
		}
	})
}

func TestReviewCannotUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := errors.New("busy")
		ended, cancel := context.WithCancel(t.Context())
		defer cancel()
		late, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		empty, err := limit.NewBudget(limit.Refund(1, 1, 1))
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name    string
			ctx     context.Context
			failure error
			reason  retry.Reason
			times   int
			opts    []retry.Option
		}{
			{"a failure that must not be repeated", t.Context(), outcomeError{retry.Outcome{Final: true}}, retry.StopPermanent, 1, nil},
			{"a permanent one that must not be repeated", t.Context(), outcomeError{retry.Outcome{Class: retry.ClassPermanent, Final: true}}, retry.StopPermanent, 1, nil},
			{"a stuck attempt", t.Context(), outcomeError{retry.Outcome{Class: retry.ClassStuck}}, retry.StopStuck, 1, nil},
			{"a canceled attempt", t.Context(), outcomeError{retry.Outcome{Class: retry.ClassCanceled}}, retry.StopCanceled, 1, nil},
			{"a canceled call", ended, busy, retry.StopCanceled, 1, nil},
			{"the attempts", t.Context(), busy, retry.StopAttempts, 4, nil},
			{"the budget", t.Context(), busy, retry.StopBudget, 2, []retry.Option{retry.WithBudget(empty)}},
			{"the deadline", late, busy, retry.StopDeadline, 3, nil},
		} {
			n, reviews := 0, 0
			r := retry.Must("fixed(1s) attempts=4", append(tt.opts, retry.WithReview(func(ctx context.Context, r retry.Review) retry.Decision {
				reviews++
				return tryNow(ctx, r)
			}))...)
			err := r.Do(tt.ctx, func(context.Context) error {
				n++
				if tt.ctx == ended {
					cancel()
				}
				if n == 3 && tt.ctx == late {
					time.Sleep(time.Minute)
				}
				return tt.failure
			})
			if !errors.Is(err, tt.reason) || n != tt.times || reviews != n {
				t.Errorf("%s: Do = %v after %d attempts and %d reviews, want %v after %d", tt.name, err, n, reviews, tt.reason, tt.times)
			}
		}
	})
}

// A call that is canceled during the review ends there.
func TestReviewOfACallThatIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	r := retry.Must("fixed(0s) attempts=3", retry.WithReview(func(ctx context.Context, r retry.Review) retry.Decision {
		cancel()
		return tryNow(ctx, r)
	}))
	if err := r.Do(ctx, func(context.Context) error { n++; return errors.New("busy") }); !errors.Is(err, retry.StopCanceled) || n != 1 {
		t.Errorf("Do = %v after %d attempts, want the cancellation after 1", err, n)
	}
}

// If the review ends the call, the budget pays for no retry.
func TestReviewIsBeforeTheBudget(t *testing.T) {
	b, err := limit.NewBudget(limit.Refund(1, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	stop := retry.Must("fixed(0s) attempts=2", retry.WithBudget(b), retry.WithReview(func(context.Context, retry.Review) retry.Decision {
		return retry.Decision{Stop: retry.StopAttempts}
	}))
	_ = stop.Do(t.Context(), func(context.Context) error { return errors.New("busy") })
	n := 0
	retries := retry.Must("fixed(0s) attempts=2", retry.WithBudget(b))
	_ = retries.Do(t.Context(), func(context.Context) error { n++; return errors.New("busy") })
	if n != 2 {
		t.Errorf("%d attempts, want 2: the budget has a retry left", n)
	}
}

// When the call ends, a ratio budget has all its tokens again, whatever the failures were.
func TestReviewOfAPermanentFailureEndsItsRetry(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"transient": errors.New("busy"), "permanent": retry.Permanent(errors.New("no"))} {
		b, err := limit.NewBudget(limit.BudgetSpec{Kind: limit.RatioBudget, Ratio: 0.2})
		if err != nil {
			t.Fatal(err)
		}
		r := retry.Must("fixed(0s) attempts=10", retry.WithBudget(b), retry.WithReview(tryNow))
		before, n := b.Tokens(), 0
		err = r.Do(t.Context(), func(context.Context) error { n++; return failure })
		if e, ok := errors.AsType[*retry.Error](err); !ok || e.Reason != retry.StopAttempts || n != 10 {
			t.Errorf("%s: %d attempts, %v, want 10 attempts", name, n, err)
		}
		if after := b.Tokens(); after != before {
			t.Errorf("%s: the budget has %v tokens, want %v", name, after, before)
		}
	}
}

func TestReviewCostsNothingWhileAllGoesWell(t *testing.T) {
	r := retry.Must("http", retry.WithReview(tryNow))
	op := func(context.Context) error { return nil }
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = r.Do(ctx, op) }); n != 0 {
		t.Errorf("%v allocations for a call that succeeds", n)
	}
}

func TestRunnerWithHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last atomic.Pointer[retry.Event]
		r := retry.Must("fixed(1s) attempts=2", retry.WithName("it"), retry.WithObserver(func(e retry.Event) { last.Store(&e) }))
		if err := r.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		h, err := r.WithHedge(retry.Hedge{After: time.Second, Share: 1})
		if err != nil {
			t.Fatal(err)
		}
		var n atomic.Int32
		got, err := retry.Hedged(t.Context(), h, func(ctx context.Context) (int, error) {
			if n.Add(1) == 1 {
				<-ctx.Done()
				return 1, ctx.Err()
			}
			return 2, nil
		})
		if got != 2 || err != nil || h.Policy().Hedge.After != time.Second || r.Policy().Hedge != (retry.Hedge{}) {
			t.Errorf("Hedged = %d, %v", got, err)
		}
		if e := last.Load(); e.Call != 2 || e.Name != "it" {
			t.Errorf("the hedger does not share the numbers of calls: %+v", e)
		}
		for _, bad := range []retry.Hedge{{}, {After: -1}} {
			if _, err := r.WithHedge(bad); err == nil {
				t.Errorf("WithHedge(%+v): no error", bad)
			}
		}
	})
}

// outcomeError is an error that states its outcome.
type outcomeError struct{ outcome retry.Outcome }

func (outcomeError) Error() string { return "failed" }

func (e outcomeError) RetryOutcome() retry.Outcome { return e.outcome }
