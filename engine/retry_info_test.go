package engine

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTheRetryInfoOfARunThatTimesOut ends the total time of runs in the middle of an
// attempt, and in the queue. The attempt that was cut off counts, and the last error is
// the timeout, also while the handler has not returned yet and after a restart.
func TestTheRetryInfoOfARunThatTimesOut(t *testing.T) {
	t.Parallel()
	const (
		middle = "timed out after 10s while an attempt ran"
		queued = "timed out after 10s in the queue for a free place; it never began"
	)
	for _, test := range []struct {
		name         string
		fails        int           // attempts that fail before the one that hangs
		returnsAfter time.Duration // how long the handler takes to return after its context has ended
		block        bool          // the only place is taken
		want         RetryInfo
		step         string // status of the step
	}{
		{"the first attempt", 0, 0, false, RetryInfo{Attempt: 0, MaxRetries: 4, LastError: middle, Backoff: nil}, "failed"},
		{"the third attempt", 2, 0, false, RetryInfo{Attempt: 2, MaxRetries: 4, LastError: middle + "; the last error: flaky", Backoff: []int64{1000, 1000}}, "failed"},
		{"a handler that has not returned", 2, time.Hour, false, RetryInfo{Attempt: 2, MaxRetries: 4, LastError: middle + "; the last error: flaky", Backoff: []int64{1000, 1000}}, "running"},
		{"in the queue", 0, 0, true, RetryInfo{Attempt: 0, MaxRetries: 4, LastError: queued, Backoff: nil}, "failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				w := one(t, func(ctx context.Context, _ int) (int, error) {
					if calls++; calls <= test.fails {
						return 0, errors.New("flaky")
					}
					<-ctx.Done()
					time.Sleep(test.returnsAfter)
					return 0, ctx.Err()
				}, Policy("fixed(1s) attempts=5"))
				q := newQueueTest(t, w)
				defer func() { _ = q.Close(context.Background()) }()
				if test.block {
					started(t, q.Engine, q.block, time.Hour)
					synctest.Wait()
				}
				run := started(t, q.Engine, w, 1, RunTimeout(10*time.Second))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				check := func(when string) {
					t.Helper()
					i := must(q.Get(t.Context(), run.ID))
					if got := i.Retry(); i.State != StateDead || !reflect.DeepEqual(got, test.want) || i.Error != test.want.LastError {
						t.Errorf("%s: %s, Retry() = %+v, error %q\nwant %+v", when, i.State, got, i.Error, test.want)
					}
					if got := i.Steps[0].Status; when == "then" && got != test.step {
						t.Errorf("%s: the step is %s, want %s", when, got, test.step)
					}
				}
				check("then")
				time.Sleep(2 * time.Hour) // the handler has returned
				synctest.Wait()
				check("later")
				_ = q.Close(context.Background())
				q.open(t)
				check("after a restart")
			})
		})
	}
}

// TestTheRetryInfoCountsTheAttemptThatRuns follows a run through a failure, an attempt
// that runs, and one that succeeds.
func TestTheRetryInfoCountsTheAttemptThatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := one(t, func(context.Context, int) (int, error) {
			if calls++; calls == 1 {
				return 0, errors.New("flaky")
			}
			time.Sleep(time.Minute)
			return 7, nil
		}, Policy("fixed(1s) attempts=5"))
		q := newQueueTest(t, w)
		defer func() { _ = q.Close(context.Background()) }()
		run := started(t, q.Engine, w, 1)
		for _, then := range []struct {
			after time.Duration
			state string
			want  int
		}{{0, StateWaiting, 0}, {2 * time.Second, StateRunning, 1}, {time.Hour, StateSucceeded, 1}} {
			time.Sleep(then.after)
			synctest.Wait()
			i := must(q.Get(t.Context(), run.ID))
			if got := i.Retry(); i.State != then.state || got.Attempt != then.want || got.LastError != "flaky" || got.MaxRetries != 4 {
				t.Errorf("%s: Retry() = %+v, want %s and attempt %d", i.State, got, then.state, then.want)
			}
		}
	})
}

// TestTheRetryInfoIsOfTheStepThatMatters uses steps with different policies. RetryInfo must describe
// the step in which the run failed or which is running, not the steps beside it.
func TestTheRetryInfoIsOfTheStepThatMatters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		fails := func(name string, times int, then func(context.Context, int) (int, error)) func(context.Context, int) (int, error) {
			calls := 0
			return func(ctx context.Context, n int) (int, error) {
				if calls++; calls <= times {
					return 0, errors.New(name + " is flaky")
				}
				return then(ctx, n)
			}
		}
		fine := func(context.Context, int) (int, error) { return 1, nil }
		w := must(NewWorkflow("two",
			Step("first", fails("first", 3, fine), Policy("fixed(1s) attempts=9")),
			Step("second", fails("second", 1, hangs), After("first"), Policy("fixed(2s) attempts=3")),
			Step("beside", fails("beside", 2, fine), After("first"), Policy("fixed(100ms) attempts=7")),
			Step("never", fine, After("second", "beside"), Policy("fixed(1s) attempts=2")),
		))
		q := newQueueTest(t, w)
		defer func() { _ = q.Close(context.Background()) }()
		_ = q.Close(context.Background())
		q.cfg.Concurrency = 4
		q.open(t)
		run := started(t, q.Engine, w, 1, RunTimeout(20*time.Second))
		i := must(q.Wait(t.Context(), run.ID))
		got := i.Retry()
		if i.Step != "second" || got.Attempt != 1 || got.MaxRetries != 2 || !reflect.DeepEqual(got.Backoff, []int64{2000}) || !strings.HasPrefix(got.LastError, "timed out after 20s while an attempt ran") {
			t.Errorf("step %q: Retry() = %+v", i.Step, got)
		}
	})
}

// TestTheRetryInfoLeavesOutLostAttempts ends the time of a run whose second attempt was
// lost with its process: it is listed, and does not count.
func TestTheRetryInfoLeavesOutLostAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := one(t, func(ctx context.Context, _ int) (int, error) {
			if calls++; calls == 1 {
				return 0, errors.New("flaky")
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}, Policy("fixed(1s) attempts=5"))
		q := newQueueTest(t, w)
		run := started(t, q.Engine, w, 1, RunTimeout(time.Minute))
		time.Sleep(2 * time.Second)
		synctest.Wait() // the second attempt runs
		_ = q.Close(gone())
		synctest.Wait()
		time.Sleep(time.Hour)
		q.open(t)
		defer func() { _ = q.Close(context.Background()) }()
		i := must(q.Wait(t.Context(), run.ID))
		if got := i.Retry(); got.Attempt != 0 || got.LastError == "" || got.LastError == "flaky" || !reflect.DeepEqual(got.Backoff, []int64{1000}) {
			t.Errorf("%s: Retry() = %+v", i.State, got)
		}
	})
}
