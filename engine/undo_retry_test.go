package engine_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// TestUndoAfterATimeoutIsRetried retries a run that timed out in a sleep: the sleep is not over.
func TestUndoAfterATimeoutIsRetried(t *testing.T) {
	d := new(deeds)
	w := d.trip(func(f *engine.Flow) error { return engine.Sleep(f, "week", 7*day) })
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1, engine.RunTimeout(day))
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "timed out")
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if run := flowRun(t, e, id); run.State != engine.StateWaiting || run.Step != "week" {
			t.Errorf("after the retry the run is %s in %q: %s", run.State, run.Step, run.Error)
		}
		d.want(t, booked+", "+undone+", "+booked)
	}, w)
}

// TestUndoFailsAfterAFailure has an operation that fails, and then an undo that fails. The second
// retry calls the operation again.
func TestUndoFailsAfterAFailure(t *testing.T) {
	d := new(deeds)
	d.fail.Store(3)
	paid := false
	w := d.trip(func(f *engine.Flow) error {
		_, err := engine.Do(f, "pay", func(context.Context) (int, error) {
			if !paid {
				return 0, errors.New("the card is refused")
			}
			return 1, nil
		}, engine.Policy("fixed(1s) attempts=1"))
		return err
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1, engine.RunTimeout(day))
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "the undo of hotel failed")
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "the card is refused")
		e.Crash()
		paid = true
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "booked")
		d.want(t, booked+", "+undone+", "+booked)
	}, w)
}

// TestUndoKeepsASignal has an operation with the name of a signal: only the operation is undone.
func TestUndoKeepsASignal(t *testing.T) {
	fail := true
	w := engine.MustFlow("named", func(f *engine.Flow, _ int) (string, error) {
		who, err := engine.Await[string](f, "deploy")
		if err != nil {
			return "", err
		}
		if _, err := engine.DoUndo(f, "deploy", value("v1"), func(context.Context, *string) error { return nil }); err != nil {
			return "", err
		}
		if fail {
			return "", errors.New("no")
		}
		return who, nil
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		send(t, e, id, "deploy", "Ada")
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "no")
		fail = false
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "Ada")
	}, w)
}

// TestUndoAfterPostpone cancels a run that is postponed while an operation of it is being stopped:
// the undo does not wait until then.
func TestUndoAfterPostpone(t *testing.T) {
	var undone time.Time
	w := engine.MustFlow("slow", func(f *engine.Flow, _ int) (string, error) {
		return engine.DoUndo(f, "slow", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			// real clock: it runs in the bubble of enginetest
			time.Sleep(time.Second)
			return "", context.Cause(ctx)
		}, func(context.Context, *string) error { undone = time.Now(); return nil })
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		synctest.Wait()
		begin := time.Now()
		if err := e.Postpone(t.Context(), id, begin.Add(day), "tester"); err != nil {
			t.Fatal(err)
		}
		if err := e.Cancel(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateCanceled, "")
		if took := undone.Sub(begin); took < time.Second || took > time.Minute {
			t.Errorf("undone after %v", took)
		}
	}, w)
}

// TestChildWithALargeOutput has a child whose last steps have more output together than an entry
// of the log can have.
func TestChildWithALargeOutput(t *testing.T) {
	large := func(context.Context, int) (string, error) { return strings.Repeat("x", 250<<10), nil }
	child, err := engine.NewWorkflow("child", engine.Step("a", large), engine.Step("b", large), engine.Step("c", large), engine.Step("d", large))
	if err != nil {
		t.Fatal(err)
	}
	parent := engine.MustFlow("parent", func(f *engine.Flow, _ int) (string, error) {
		_, err := engine.Child[map[string]string](f, "one", child, 1)
		return "", err
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		wantRun(t, e.Run(parent, 1), engine.StateDead, "and a parent can get at most 262144")
	}, parent, child)
}

// TestChildDetachedIsNotStartedTwice retries a parent that died while its child worked.
func TestChildDetachedIsNotStartedTwice(t *testing.T) {
	f := newChildren(0, engine.Detached())
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, f.parent, []int{1}, engine.RunTimeout(time.Hour))
		run := endOfFlow(t, e, id)
		wantRun(t, endOfFlow(t, e, operations(run, "child", "one")[0].Child), engine.StateSucceeded, "child 1")
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "child 1")
		if n := f.executed.Load(); n != 1 {
			t.Errorf("%d children were executed", n)
		}
	}, f.parent, f.child)
}

// TestRetryWhileChildrenAreCanceled refuses a retry that would wait for a child that is being
// canceled.
func TestRetryWhileChildrenAreCanceled(t *testing.T) {
	waits := engine.MustFlow("waits", func(f *engine.Flow, _ int) (string, error) {
		if _, err := engine.DoUndo(f, "a", value("a"), func(context.Context, *string) error { return errors.New("not yet") }, engine.UndoPolicy("fixed(1h) attempts=2")); err != nil {
			return "", err
		}
		return "", engine.Sleep(f, "month", 30*day)
	})
	parent := engine.MustFlow("parent", func(f *engine.Flow, _ int) (string, error) {
		return engine.Child[string](f, "one", waits, 1)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, parent, 1, engine.RunTimeout(time.Hour))
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "")
		if err := e.Retry(t.Context(), id, "tester"); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "children of run "+id+" are still being canceled") {
			t.Errorf("retry: %v", err)
		}
		time.Sleep(2 * time.Hour)
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Error(err)
		}
	}, parent, waits)
}

// TestUndoHasAKeyOfItsOwn checks that a service that drops the repetition of a request does not drop
// the undo: Origin and Step of its task are not those of the operation, and are the same in each of its
// attempts.
func TestUndoHasAKeyOfItsOwn(t *testing.T) {
	var mu sync.Mutex
	var keys []string
	attempt := func(ctx context.Context) int {
		task, _ := engine.TaskOf(ctx)
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, strings.TrimPrefix(task.Origin+"/"+task.Step, task.Run+"/"))
		return task.Attempt
	}
	w := engine.MustFlow("keys", func(f *engine.Flow, _ int) (string, error) {
		if _, err := engine.DoUndo(f, "a", func(ctx context.Context) (int, error) { return attempt(ctx), nil }, func(ctx context.Context, _ *int) error {
			if attempt(ctx) == 1 {
				return errors.New("not yet")
			}
			return nil
		}, engine.ForKey("x"), engine.UndoPolicy("fixed(1s) attempts=2")); err != nil {
			return "", err
		}
		_, err := engine.MapUndo(f, "b", []int{7}, func(ctx context.Context, _ int) (int, error) { return attempt(ctx), nil },
			func(ctx context.Context, _ int, _ *int) error { attempt(ctx); return nil })
		return "", errors.Join(err, errors.New("no"))
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		wantRun(t, e.Run(w, 1), engine.StateDead, "no")
		if got, want := strings.Join(keys, " "), "a[x] b#0 undo:b#0 undo:a[x] undo:a[x]"; got != want {
			t.Errorf("the keys of the attempts are %s, want %s", got, want)
		}
	}, w)
}

// TestChildrenOfARunThatIsContinued deploys code that calls Again instead of waiting for the children
// of a run: those that have not ended are canceled.
func TestChildrenOfARunThatIsContinued(t *testing.T) {
	child := engine.MustFlow("child", func(f *engine.Flow, _ int) (string, error) { return engine.Await[string](f, "go") })
	parent := engine.MustFlow("parent", func(f *engine.Flow, _ int) (string, error) {
		_, err := engine.Children[int, string](f, "many", child, []int{0, 1, 2}, engine.Parallel(2))
		return "", err
	})
	other := engine.MustFlow("parent", func(f *engine.Flow, n int) (string, error) {
		if n == 2 {
			return "second", nil
		}
		engine.Removed(f, "many")
		return "", engine.Again(f, 2)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, parent, 1)
		time.Sleep(time.Hour)
		run := flowRun(t, e, id)
		first, second := operations(run, "child", "many#0")[0].Child, operations(run, "child", "many#1")[0].Child
		send(t, e, first, "go", "now")
		synctest.Wait()
		mustDo(t, e.Register(other)) // the function is called again
		time.Sleep(time.Hour)
		if run := flowRun(t, e, id); run.ContinuedBy == "" {
			t.Fatalf("the parent is %s: %s", run.State, run.Error)
		}
		wantRun(t, flowRun(t, e, first), engine.StateSucceeded, "now")
		wantRun(t, flowRun(t, e, second), engine.StateCanceled, "")
	}, parent, child)
}

// TestUndoWithoutRoomForResults undoes an operation of a run whose results have the largest size.
func TestUndoWithoutRoomForResults(t *testing.T) {
	d := new(deeds)
	w := engine.MustFlow("large", func(f *engine.Flow, _ int) (string, error) {
		if _, err := engine.DoUndo(f, "a", value("a"), func(context.Context, *string) error { d.add("undo a"); return nil }); err != nil {
			return "", err
		}
		for n, size := 0, 250<<10; ; n++ {
			_, err := engine.Do(f, "big", value(strings.Repeat("x", size)), engine.ForKey(strconv.Itoa(n)))
			if err != nil && size == 0 {
				return "", err
			} else if err != nil {
				size /= 8 // until nothing fits
			}
		}
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		wantRun(t, run, engine.StateDead, "more than 32 MiB")
		if s := operations(run, "undo", "a"); len(s) != 1 || s[0].Status != "succeeded" {
			t.Errorf("the undo: %+v", s)
		}
		d.want(t, "undo a")
	}, w)
}

// TestInfoOfUndoneOperations has operations that were undone, and are called again by a retry. The
// first calls, which had succeeded, have not failed, and no call of the function is running.
func TestInfoOfUndoneOperations(t *testing.T) {
	d := new(deeds)
	paid := false
	w := d.trip(func(f *engine.Flow) error {
		_, err := engine.Do(f, "pay", func(context.Context) (int, error) {
			if !paid {
				return 0, errors.New("the card is refused")
			}
			return 1, nil
		}, engine.Policy("fixed(1s) attempts=1"))
		return err
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		want := func(state, failed string) {
			t.Helper()
			run := endOfFlow(t, e, id)
			wantRun(t, run, state, "")
			var names []string
			for _, s := range run.Steps {
				for _, a := range s.Attempts {
					if a.Outcome == "running" || a.Ended == nil {
						t.Errorf("attempt %d of %s is %s", a.Number, s.Name, a.Outcome)
					}
				}
				if s.Kind != "function" && s.Status == "failed" {
					names = append(names, s.Name)
				}
			}
			if got := strings.Join(names, " "); got != failed {
				t.Errorf("failed: %q, want %q", got, failed)
			}
		}
		want(engine.StateDead, "pay")
		paid = true
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		want(engine.StateSucceeded, "pay") // its first call
	}, w)
}
