package engine

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

const patient = "fixed(1m) attempts=2 server-wait=8d server-slack=90s"

func TestLimitedSpendsWindowsAndNoAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Time
		w := one(t, func(ctx context.Context, _ int) (int, error) {
			calls = append(calls, time.Now())
			switch n := len(calls); {
			case n <= 10:
				return 0, Limited(time.Now().Add(time.Hour), "resets in an hour")
			default:
				return n, nil
			}
		}, Policy(patient))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		i, err := e.Wait(t.Context(), started(t, e, w, 1).ID)
		if err != nil || i.State != "succeeded" || i.Steps[0].Windows != 10 || i.Steps[0].Spent != 0 {
			t.Fatalf("run is %s, %d windows and %d attempts spent, %v", i.State, i.Steps[0].Windows, i.Steps[0].Spent, err)
		}
		for n, a := range i.Steps[0].Attempts[:10] {
			wait := calls[n+1].Sub(calls[n])
			if least := time.Hour + 90*time.Second; wait < least || wait > least+30*time.Second {
				t.Errorf("wait %d took %v, want %v and at most 30s more", n+1, wait, least)
			}
			if a.Outcome != "limited" || a.Error != "resets in an hour" || a.Wait == nil || a.Wait.By != "server" {
				t.Errorf("attempt %d is %+v, wait %+v", n+1, a, a.Wait)
			}
		}
	})
}

func TestTooManyWindows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := one(t, func(context.Context, int) (int, error) { return 0, LimitedFor(time.Hour, "again") }, Policy(patient), MaxWindows(3))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		id := started(t, e, w, 1).ID
		i := must(e.Wait(t.Context(), id))
		if i.State != "dead" || i.Reason != "windows" || i.Attempts != 4 || i.Error != "again" {
			t.Fatalf("run is %s because of %s after %d attempts: %s", i.State, i.Reason, i.Attempts, i.Error)
		}
		// Put back to work, it has them again.
		if err := e.Retry(t.Context(), id, "me"); err != nil {
			t.Fatal(err)
		}
		if i = must(e.Wait(t.Context(), id)); i.Attempts != 8 {
			t.Errorf("after a retry there were %d attempts in all, want 8", i.Attempts)
		}
	})
}

func TestLimitedBeyondServerWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := one(t, func(context.Context, int) (int, error) {
			return 0, Limited(time.Now().Add(9*24*time.Hour), "weekly limit")
		}, Policy(patient))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		if i := must(e.Wait(t.Context(), started(t, e, w, 1).ID)); i.State != "dead" || i.Reason != "server-wait" {
			t.Errorf("run is %s because of %s", i.State, i.Reason)
		}
	})
}

// Attempts after a window are counted from the beginning, and bounded.
func TestProbesAreAFreshCounter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := []error{
			errors.New("crash"), LimitedFor(time.Hour, "limit"),
			errors.New("still limited"), LimitedFor(time.Hour, "limit"),
			errors.New("still limited"), errors.New("still limited"),
		}
		n := 0
		w := one(t, func(context.Context, int) (int, error) {
			n++
			return 0, answers[n-1]
		}, Policy(patient))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		i := must(e.Wait(t.Context(), started(t, e, w, 1).ID))
		if i.State != "dead" || i.Reason != "attempts" || n != len(answers) || i.Steps[0].Windows != 2 {
			t.Errorf("run is %s because of %s after %d attempts and %d windows", i.State, i.Reason, n, i.Steps[0].Windows)
		}
	})
}

func TestResetAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Two failures at once are the end; those after a healthy stretch are first ones.
		lasts := []time.Duration{0, 10 * time.Minute, 0, 11 * time.Minute, time.Second, 9 * time.Minute}
		n := 0
		w := one(t, func(context.Context, int) (int, error) {
			n++
			time.Sleep(lasts[n-1])
			return 0, errors.New("crash")
		}, Policy("fixed(1s) attempts=3 reset-after=10m"))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		i := must(e.Wait(t.Context(), started(t, e, w, 1).ID))
		if i.State != "dead" || n != len(lasts) || i.Steps[0].Spent != 3 {
			t.Errorf("run is %s after %d attempts, %d spent", i.State, n, i.Steps[0].Spent)
		}
	})
}

func TestKeepIsThereForTheNextAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var seen []string
		w := one(t, func(ctx context.Context, _ int) (int, error) {
			task, _ := TaskOf(ctx)
			seen = append(seen, string(task.Progress))
			switch task.Total {
			case 1:
				return 0, Keep(errors.New("crash"), 1)
			case 2:
				return 0, Keep(Snooze(time.Minute, "later"), 2)
			case 3:
				return 0, Keep(Limited(time.Now().Add(time.Hour), "limit"), 3)
			case 4:
				return 0, errors.New("crash, and nothing new to keep")
			}
			return 0, nil
		}, Policy("fixed(1m) attempts=5 server-wait=1d"))
		e := must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet()}))
		s := started(t, e, w, 1)
		time.Sleep(4 * time.Minute)
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e = opened(t, Config{Log: store.Open(), Workflows: []*Workflow{w}})
		must(e.Wait(t.Context(), s.ID))
		if got := strings.Join(seen, " "); got != " 1 2 3 3" {
			t.Errorf("the attempts found %q", got)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		var why atomic.Value
		w := one(t, func(ctx context.Context, _ int) (int, error) {
			running.Add(1)
			defer running.Add(-1)
			select {
			case <-ctx.Done():
				why.Store(context.Cause(ctx))
				return 0, context.Cause(ctx)
			case <-time.After(time.Hour):
				return 0, errors.New("crash")
			}
		}, Policy("fixed(2h) attempts=3"))
		var store memlog.Store
		e := must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet()}))
		ctx, id := t.Context(), started(t, e, w, 1).ID
		time.Sleep(time.Minute)
		must(0, e.Pause(ctx, id, "me"))
		synctest.Wait()
		if err, _ := why.Load().(error); running.Load() != 0 || !errors.Is(err, ErrPaused) {
			t.Fatalf("%d run after Pause, told %v", running.Load(), err)
		}
		if err := e.Pause(ctx, id, "me"); !errors.Is(err, ErrState) {
			t.Errorf("a second Pause() = %v", err)
		}
		time.Sleep(24 * time.Hour)
		must(0, e.Close(ctx))
		e = opened(t, Config{Log: store.Open(), Workflows: []*Workflow{w}})
		time.Sleep(time.Hour)
		if i := must(e.Get(ctx, id)); i.State != "paused" || i.Next != nil || i.Attempts != 1 || i.Steps[0].Spent != 0 {
			t.Fatalf("a day and a restart later the run is %s, next %v, %d attempts, %d spent", i.State, i.Next, i.Attempts, i.Steps[0].Spent)
		}
		must(0, e.Resume(ctx, id, "me"))
		synctest.Wait()
		if running.Load() != 1 {
			t.Fatal("nothing runs after Resume")
		}
		// Pause in a wait: the wait keeps its time.
		time.Sleep(time.Hour + time.Minute)
		next := *must(e.Get(ctx, id)).Next
		must(0, e.Pause(ctx, id, "me"))
		time.Sleep(time.Minute)
		must(0, e.Resume(ctx, id, "me"))
		if i := must(e.Get(ctx, id)); i.State != "waiting" || !i.Next.Equal(next) {
			t.Fatalf("the run is %s until %v, want %v", i.State, i.Next, next)
		}
		must(0, e.Pause(ctx, id, "me"))
		time.Sleep(3 * time.Hour)
		if running.Load() != 0 {
			t.Fatal("the wait of a paused run has ended")
		}
		must(0, e.Resume(ctx, id, "me"))
		synctest.Wait()
		if running.Load() != 1 {
			t.Error("a wait that was over while the run was paused goes on")
		}
		must(0, e.Cancel(ctx, id, "me"))
	})
}

func TestPostponeAndReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		w := one(t, func(context.Context, int) (int, error) {
			n++
			return 0, errors.New("crash")
		}, Policy("fixed(1m) attempts=2"))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		ctx, id := t.Context(), started(t, e, w, 1).ID
		time.Sleep(time.Second)
		morning := time.Now().Add(8 * time.Hour)
		must(0, e.Postpone(ctx, id, morning, "me"))
		if err := e.Postpone(ctx, id, morning, "me"); !errors.Is(err, ErrState) {
			t.Errorf("a second Postpone() = %v", err)
		}
		must(0, e.Reset(ctx, id, "me"))
		time.Sleep(7 * time.Hour)
		if i := must(e.Get(ctx, id)); n != 1 || !i.Next.Equal(morning) || i.Steps[0].Spent != 0 || i.Steps[0].Attempts[0].Wait.Moved != "me" {
			t.Fatalf("%d attempts, next %v, want %v; %d spent; %+v", n, i.Next, morning, i.Steps[0].Spent, i.Steps[0].Attempts[0].Wait)
		}
		if i := must(e.Wait(ctx, id)); i.State != "dead" || n != 3 {
			t.Errorf("run is %s after %d attempts, want two after the reset", i.State, n)
		}
		if err := e.Reset(ctx, id, "me"); !errors.Is(err, ErrState) {
			t.Errorf("Reset() of a dead run = %v", err)
		}
	})
}

// A wait until a point of the wall clock ends at that point when the clock is set. A wait with a
// duration keeps its duration.
func TestLimitsAndTheClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		calendar bool
		set      time.Duration // the clock, after a minute
		want     time.Duration // until the second attempt
	}{
		{"a calendar time comes sooner when the clock is set forward", true, 30 * time.Minute, 30 * time.Minute},
		{"a calendar time comes later when the clock is set back", true, -30 * time.Minute, 90 * time.Minute},
		{"a time that passes is not shortened", false, 30 * time.Minute, time.Hour},
		{"a time that passes is not prolonged", false, -30 * time.Minute, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var offset atomic.Int64
				var calls []time.Time
				w := one(t, func(context.Context, int) (int, error) {
					if calls = append(calls, time.Now()); len(calls) > 1 {
						return 0, nil
					}
					if tt.calendar {
						return 0, Limited(time.Now().Add(time.Hour), "limit")
					}
					return 0, LimitedFor(time.Hour, "limit")
				}, Policy("fixed(1s) attempts=2 server-wait=1d"))
				e := opened(t, Config{Workflows: []*Workflow{w}, Rand: func() uint64 { return 0 }, wall: func(now time.Time) int64 { return now.UnixNano() + offset.Load() }})
				s := started(t, e, w, 1)
				time.Sleep(time.Minute)
				offset.Store(int64(tt.set))
				if err := e.Reset(t.Context(), s.ID, "a look at the clock"); err != nil {
					t.Fatal(err)
				}
				must(e.Wait(t.Context(), s.ID))
				if took := calls[1].Sub(calls[0]); took < tt.want || took > tt.want+time.Minute {
					t.Errorf("the second attempt came after %v, want %v", took, tt.want)
				}
			})
		})
	}
}

func TestSnoozeUntilSpendsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		morning := time.Now().Add(8 * time.Hour)
		n := 0
		w := one(t, func(context.Context, int) (int, error) {
			if n++; n == 1 {
				return 0, SnoozeUntil(morning, "quiet hours")
			}
			return 0, nil
		}, Policy("fixed(1s) attempts=1"))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		i := must(e.Wait(t.Context(), started(t, e, w, 1).ID))
		if a := i.Steps[0].Attempts[0]; i.State != "succeeded" || a.Outcome != "snoozed" || !a.Wait.Until.Equal(morning) || !i.Ended.Equal(morning) {
			t.Errorf("run is %s at %v, first attempt %+v, %+v", i.State, i.Ended, a, a.Wait)
		}
	})
}

func TestEventsOfLimitsAndPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var kinds []string
		w := one(t, func(context.Context, int) (int, error) { return 0, LimitedFor(time.Hour, "limit") }, Policy(patient), MaxWindows(1))
		e := opened(t, Config{Workflows: []*Workflow{w}, Observer: func(ev retry.Event) {
			kinds = append(kinds, strings.TrimSpace(ev.Kind.String()+" "+ev.Note))
		}})
		id := started(t, e, w, 1).ID
		time.Sleep(time.Minute)
		must(0, e.Pause(t.Context(), id, "me"))
		must(0, e.Resume(t.Context(), id, "you"))
		must(e.Wait(t.Context(), id))
		synctest.Wait()
		want := "run-started, attempt-started, waiting limit, paused me, resumed you, attempt-started, attempt-failed, gave-up, gave-up"
		if got := strings.Join(kinds, ", "); got != want {
			t.Errorf("events are\n%s, want\n%s", got, want)
		}
	})
}

// A limit of runs counts retried runs too. A paused run does not count.
func TestMaxRunsOfPausedAndRetriedRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, most := 0, 0
		fail := true
		w := must(NewWorkflow("w", MaxRuns(1), Step("s", func(ctx context.Context, _ int) (int, error) {
			running++
			defer func() { running-- }()
			most = max(most, running)
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
			if fail {
				return 0, retry.Permanent(errors.New("no"))
			}
			return 0, nil
		})))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		ctx := t.Context()
		var ids []string
		for range 3 {
			ids = append(ids, started(t, e, w, 1).ID)
		}
		for _, id := range ids {
			must(e.Wait(ctx, id))
		}
		fail = false
		for _, id := range ids {
			must(0, e.Retry(ctx, id, "me"))
		}
		time.Sleep(time.Second)
		if i := must(e.Get(ctx, ids[1])); i.State != "queued" {
			t.Errorf("a run that is put back to work beside another is %s", i.State)
		}
		// The first has the place, until it is paused.
		must(0, e.Pause(ctx, ids[0], "me"))
		if i := must(e.Wait(ctx, ids[1])); i.State != "succeeded" {
			t.Errorf("the second run is %s", i.State)
		}
		must(0, e.Resume(ctx, ids[0], "me"))
		for _, id := range ids {
			if i := must(e.Wait(ctx, id)); i.State != "succeeded" {
				t.Errorf("a run is %s", i.State)
			}
		}
		if most != 1 {
			t.Errorf("%d were in progress at once", most)
		}
	})
}

func TestAnInputThatTheStepsCanNotRead(t *testing.T) {
	t.Parallel()
	w := one(t, func(_ context.Context, in struct{ N int }) (int, error) { return in.N, nil })
	e := opened(t, Config{Workflows: []*Workflow{w}})
	for _, input := range []any{"text", []int{1}, map[string]string{"N": "one"}} {
		if _, err := e.Start(t.Context(), w, input); err == nil || !strings.Contains(err.Error(), "input: json: cannot unmarshal") {
			t.Errorf("Start with %v = %v", input, err)
		}
	}
	for _, input := range []any{nil, struct{ N int }{1}, map[string]int{"N": 1}} {
		if _, err := e.Start(t.Context(), w, input); err != nil {
			t.Errorf("Start with %v = %v", input, err)
		}
	}
}

// A handler that returns SpendWindow uses a window, and is called again at once.
func TestSpendWindowIsCalledAgainAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Time
		var reset time.Time
		w := one(t, func(context.Context, int) (int, error) {
			calls = append(calls, time.Now())
			switch len(calls) {
			case 1:
				reset = time.Now().Add(5 * time.Hour)
				return 0, Keep(SpendWindow(reset, "resets in five hours"), "memo")
			case 2:
				return 0, SnoozeUntil(reset, "done meanwhile")
			}
			return 0, nil
		}, Policy(patient))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		i := must(e.Wait(t.Context(), started(t, e, w, 1).ID))
		s := i.Steps[0]
		if i.State != "succeeded" || s.Windows != 1 || s.Spent != 0 || string(s.Progress) != `"memo"` {
			t.Fatalf("run is %s, %d windows and %d attempts spent, progress %s: %s", i.State, s.Windows, s.Spent, s.Progress, i.Error)
		}
		if !calls[1].Equal(calls[0]) || !calls[2].Equal(reset) {
			t.Errorf("the handler was called at %v, want the second time at once and the third at %v", calls, reset)
		}
		if a := s.Attempts[0]; a.Outcome != "limited" || a.Wait == nil || a.Wait.Delay != 0 || a.Wait.By != "server" {
			t.Errorf("the first attempt is %+v, wait %+v", a, a.Wait)
		}
	})
}

// A step that gives up after Limited also gives up after SpendWindow.
func TestSpendWindowGivesUpLikeLimited(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason string
		wait   time.Duration
		calls  int
	}{{"windows", time.Hour, 3}, {"server-wait", 9 * 24 * time.Hour, 1}} {
		synctest.Test(t, func(t *testing.T) {
			w := one(t, func(context.Context, int) (int, error) { return 0, SpendWindow(time.Now().Add(tt.wait), "limit") }, Policy(patient), MaxWindows(2))
			e := opened(t, Config{Workflows: []*Workflow{w}})
			if i := must(e.Wait(t.Context(), started(t, e, w, 1).ID)); i.State != "dead" || i.Reason != tt.reason || i.Attempts != tt.calls {
				t.Errorf("run is %s because of %s after %d attempts, want %s after %d", i.State, i.Reason, i.Attempts, tt.reason, tt.calls)
			}
		})
	}
}
