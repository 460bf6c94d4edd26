package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// Each mistake parks the run with a message that names the operation. Code without the mistake
// finishes the run.
func TestFlowMistakes(t *testing.T) {
	flow := func(do func(*engine.Flow, int) (string, error)) *engine.Workflow { return engine.MustFlow("wrong", do) }
	tests := []struct {
		name string
		want string
		do   func(*engine.Flow, int) (string, error) // input: the number of the call
		time time.Duration                           // until the mistake
	}{
		{name: "the same identity twice", want: "operation a: called twice", do: func(f *engine.Flow, _ int) (string, error) {
			if err := do(f, "a"); err != nil {
				return "", err
			}
			return "", do(f, "a")
		}},
		{name: "the same key twice", want: "operation a[7]: called twice", do: func(f *engine.Flow, _ int) (string, error) {
			for _, key := range []string{"6", "7", "7"} {
				if err := do(f, "a", engine.ForKey(key)); err != nil {
					return "", err
				}
			}
			return "ok", nil
		}},
		{name: "an error that the function ignores", want: "operation a: called twice", do: func(f *engine.Flow, _ int) (string, error) {
			_, _ = do(f, "a"), do(f, "a")
			return "ok", nil
		}},
		{name: "an error that the function ignores before a long wait", want: "operation a: called twice", do: func(f *engine.Flow, _ int) (string, error) {
			_, _ = do(f, "a"), do(f, "a")
			return "ok", engine.Sleep(f, "long", day)
		}},
		{name: "a second goroutine", want: "operation b: called from a second goroutine; use engine.Map or engine.Branches for operations side by side", do: func(f *engine.Flow, _ int) (string, error) {
			result := make(chan error)
			go func() { result <- do(f, "b") }()
			if err := <-result; !errors.Is(err, engine.ErrSecondGoroutine) {
				return "", fmt.Errorf("got %v", err)
			}
			return "ok", nil
		}},
		{name: "a second goroutine beside an operation", want: "operation b: called from a second goroutine", do: func(f *engine.Flow, _ int) (string, error) {
			result := make(chan error, 1)
			go func() { result <- engine.Sleep(f, "b", time.Second) }()
			_ = do(f, "a")
			<-result
			return "ok", nil
		}},
		{name: "a flow inside an operation", want: "operation b: called inside another operation; an operation can't use the flow", do: func(f *engine.Flow, _ int) (string, error) {
			return engine.Do(f, "a", func(context.Context) (string, error) { return engine.Do(f, "b", value("b")) }, engine.Policy("fixed(1s) attempts=1"))
		}},
		{name: "a flow inside an operation that ignores the error", want: "operation b: called inside another operation", do: func(f *engine.Flow, _ int) (string, error) {
			_, err := engine.Do(f, "a", func(context.Context) (int, error) { _ = do(f, "b"); return 1, nil })
			if err == nil {
				err = engine.Sleep(f, "long", day)
			}
			return "ok", err
		}},
		{name: "a flow inside an operation with a long retry", want: "operation b: called inside another operation", do: func(f *engine.Flow, _ int) (string, error) {
			_, err := engine.Do(f, "a", func(context.Context) (int, error) { return 1, do(f, "b") }, engine.Policy("fixed(1h) attempts=3"))
			return "ok", err
		}},
		{name: "a flow inside an operation of a map", want: "operation b: called inside another operation", do: func(f *engine.Flow, _ int) (string, error) {
			_, err := engine.Map(f, "m", []int{1, 2}, func(context.Context, int) (int, error) { _ = do(f, "b"); return 0, nil })
			return "ok", err
		}},
		{
			name: "the wall clock in a branch", time: day,
			want: `the run has a stored operation "early" that the function did not call before the new operation "late": deploy code that calls it, or that says engine.Renamed or engine.Removed; or engine.Added, to execute "late" now`,
			do: func(f *engine.Flow, call int) (string, error) {
				branch := "early"
				if call > 1 {
					branch = "late"
				}
				if err := do(f, branch); err != nil {
					return "", err
				}
				return "ok", engine.Sleep(f, "long", day)
			},
		},
		{
			name: "an error before a stored operation", time: day,
			want: `the run has a stored operation "a" that the function did not call: deploy code that calls it, or that says engine.Renamed or engine.Removed; the function returned the error: no such file`,
			do: func(f *engine.Flow, call int) (string, error) {
				if call > 1 {
					return "", errors.New("no such file")
				}
				if err := do(f, "a"); err != nil {
					return "", err
				}
				return "ok", engine.Sleep(f, "long", day)
			},
		},
		{
			name: "items of a map that change", time: day,
			want: "operation m: item 1 is not the same as in the stored operation: the items must follow from the input and from results of operations",
			do: func(f *engine.Flow, call int) (string, error) {
				if _, err := engine.Map(f, "m", []int{7, call}, func(context.Context, int) (int, error) { return 0, nil }); err != nil {
					return "", err
				}
				return "ok", engine.Sleep(f, "long", day)
			},
		},
		{
			name: "a number of items that changes", time: day, want: "operation m: has 3 items, but the stored operation has 2: ",
			do: func(f *engine.Flow, call int) (string, error) {
				if _, err := engine.Collect(f, "m", make([]int, call+1), func(context.Context, int) (int, error) { return 0, nil }); err != nil {
					return "", err
				}
				return "ok", engine.Sleep(f, "long", day)
			},
		},
		{
			name: "a kind that changes", time: day,
			want: "operation a: is of kind sleep, but the stored operation is of kind do: use another name, and engine.Removed for the stored one",
			do: func(f *engine.Flow, call int) (string, error) {
				if call > 1 {
					return "", engine.Sleep(f, "a", time.Second)
				}
				if err := do(f, "a"); err != nil {
					return "", err
				}
				return "ok", engine.Sleep(f, "long", day)
			},
		},
		{name: "items that can't be stored", want: "operation m: item 1: json: unsupported value: NaN", do: func(f *engine.Flow, _ int) (string, error) {
			_, err := engine.Map(f, "m", []float64{1, math.NaN()}, func(context.Context, float64) (int, error) { return 0, nil })
			return "", err
		}},
		{name: "an empty name", want: `operation : name: "" must have 1 to 128 characters`, do: func(f *engine.Flow, _ int) (string, error) {
			return "", do(f, "")
		}},
		{name: "a name with a sign that is not allowed", want: `operation a#1: name: "a#1" may have letters`, do: func(f *engine.Flow, _ int) (string, error) {
			_, err := engine.Now(f, "a#1")
			return "", err
		}},
		{name: "an empty key", want: "operation a: key: ", do: func(f *engine.Flow, _ int) (string, error) {
			return "", do(f, "a", engine.ForKey(""))
		}},
		{name: "a policy that does not exist", want: "operation a: policy: ", do: func(f *engine.Flow, _ int) (string, error) {
			return "", do(f, "a", engine.Policy("sometimes(1s)"))
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var calls atomic.Int32
			wrong := flow(func(f *engine.Flow, _ int) (string, error) { return test.do(f, int(calls.Add(1))) })
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, wrong, 1)
				time.Sleep(test.time)
				run := flowRun(t, e, id)
				if run.State != engine.StateNeedsHandler || !strings.HasPrefix(run.Error, test.want) {
					t.Fatalf("the run is %s: %q, want the error %q", run.State, run.Error, test.want)
				}
				if n := run.Notes[len(run.Notes)-1]; n.What != "parked" || n.Text != run.Error {
					t.Errorf("the last note is %+v", n)
				}

				// The same code is not called again, even if other code is deployed.
				called := calls.Load()
				other := engine.MustFlow("other", func(*engine.Flow, int) (int, error) { return 1, nil })
				if err := e.Register(other); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * day)
				if run := flowRun(t, e, id); run.State != engine.StateNeedsHandler || calls.Load() != called {
					t.Errorf("the run is %s, and its function was called %d times more", run.State, calls.Load()-called)
				}
				fits := flow(func(f *engine.Flow, _ int) (string, error) {
					engine.Removed(f, "a", "a[6]", "a[7]", "b", "m", "early", "late", "long")
					return "repaired", nil
				})
				if err := e.Register(fits); err != nil {
					t.Fatal(err)
				}
				wantRun(t, endOfFlow(t, e, id), "succeeded", "repaired")
			}, wrong)
		})
	}
}

// Without package enginetest, no goroutine is told apart. An operation that is called before the last one of
// its flow is over is still found.
func TestOverlappingOperations(t *testing.T) {
	const overlap = "operation b: called before the last operation of the flow is over"
	tests := []struct {
		name, want string
		is         error
		do         func(*engine.Flow) error
	}{
		{"a flow inside an operation", overlap, engine.ErrFlowInOperation, func(f *engine.Flow) error {
			_, err := engine.Do(f, "a", func(context.Context) (int, error) { return 1, retry.Permanent(do(f, "b")) })
			return err
		}},
		{"a flow inside an operation of a branch", overlap, engine.ErrFlowInOperation, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("x", func(f *engine.Flow) error {
				_, err := engine.Do(f, "a", func(context.Context) (int, error) { return 1, retry.Permanent(do(f, "b")) })
				return err
			}))
		}},
		{"a second goroutine beside an operation", overlap, engine.ErrSecondGoroutine, func(f *engine.Flow) error {
			result := make(chan error, 1)
			_, err := engine.Do(f, "a", func(context.Context) (int, error) {
				go func() { result <- do(f, "b") }()
				return 1, <-result
			}, engine.Policy("fixed(1s) attempts=1"))
			return err
		}},
		{"the flow of the function in a branch", "operation b: called with the flow of another branch", engine.ErrOtherBranch, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("x", func(*engine.Flow) error { return do(f, "b") }))
		}},
		{"the flow of a branch in another one", overlap, engine.ErrOtherBranch, func(f *engine.Flow) error {
			var kept *engine.Flow
			return engine.Branches(f,
				engine.Branch("x", func(f *engine.Flow) error { kept = f; return engine.Sleep(f, "s", time.Hour) }),
				engine.Branch("y", func(*engine.Flow) error { return do(kept, "b") }))
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got error
				w := engine.MustFlow("wrong", func(f *engine.Flow, _ int) (string, error) {
					got = test.do(f)
					return "ok", nil
				})
				e, err := engine.Open(t.Context(), engine.Config{Log: new(memlog.Store).Open(), Workflows: []*engine.Workflow{w}, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = e.Close(context.Background()) }()
				s, err := e.Start(t.Context(), w, 1)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				run, err := e.Get(t.Context(), s.ID)
				if err != nil || run.State != engine.StateNeedsHandler || !strings.HasPrefix(run.Error, test.want) {
					t.Errorf("the run is %s: %q, %v", run.State, run.Error, err)
				}
				if got != nil && !errors.Is(got, test.is) && !strings.Contains(got.Error(), test.want) { // the failure of an operation has only the text
					t.Errorf("the function got %v", got)
				}
			})
		})
	}
}

// No operation begins after a wrong use.
func TestFlowDoesNothingAfterAMistake(t *testing.T) {
	var after atomic.Int32
	w := engine.MustFlow("wrong", func(f *engine.Flow, _ int) (int, error) {
		_, _ = do(f, "a"), do(f, "a")
		return engine.Do(f, "b", func(context.Context) (int, error) { return int(after.Add(1)), nil })
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := flowRun(t, e, startFlow(t, e, w, 1))
		wantRun(t, run, engine.StateNeedsHandler, "operation a: called twice")
		if after.Load() != 0 || len(operations(run, "do", "b")) > 0 {
			t.Error("an operation began after the mistake")
		}
	}, w)
}

// A crash of a parked run calls its function once more, because the code may be other code.
func TestFlowParkedOverACrash(t *testing.T) {
	var calls atomic.Int32
	w := engine.MustFlow("wrong", func(f *engine.Flow, _ int) (string, error) {
		calls.Add(1)
		_, _ = do(f, "a"), do(f, "a")
		return "", nil
	})
	fits := engine.MustFlow("wrong", func(f *engine.Flow, _ int) (string, error) { return engine.Do(f, "a", value("other")) })
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		wantRun(t, flowRun(t, e, id), engine.StateNeedsHandler, "called twice")
		e.Crash()
		time.Sleep(day)
		if wantRun(t, flowRun(t, e, id), engine.StateNeedsHandler, "called twice"); calls.Load() != 2 {
			t.Errorf("the function was called %d times, want 2", calls.Load())
		}
		e.Crash(fits)
		wantRun(t, endOfFlow(t, e, id), "succeeded", "done")
	}, w)
}

// A canceled run does not wait for code any more.
func TestFlowParkedIsCanceled(t *testing.T) {
	w := engine.MustFlow("wrong", func(f *engine.Flow, _ int) (string, error) {
		_, _ = do(f, "a"), do(f, "a")
		return "", nil
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		wantRun(t, flowRun(t, e, id), engine.StateNeedsHandler, "called twice")
		if err := e.Cancel(t.Context(), id, "me"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), "canceled", "")
	}, w)
}

// Deferred calls of a function that is suspended run. Operations that they call do nothing.
func TestFlowDeferredCalls(t *testing.T) {
	var cleaned atomic.Int32
	results := make(chan error, 9)
	w := engine.MustFlow("deferred", func(f *engine.Flow, _ int) (string, error) {
		defer func() {
			if recover() != nil {
				t.Error("a suspended function panics")
			}
			_, err := engine.Do(f, "cleanup", func(context.Context) (int, error) { return int(cleaned.Add(1)), nil })
			results <- err
		}()
		return "ok", engine.Sleep(f, "long", day)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		wantRun(t, e.Run(w, 1), "succeeded", "ok")
		first, second := <-results, <-results
		if !errors.Is(first, engine.ErrFlowOver) || second != nil || len(results) > 0 || cleaned.Load() != 1 {
			t.Errorf("errors %v and %v, cleaned %d times", first, second, cleaned.Load())
		}
		if want := "operation cleanup: the call of the function is over"; first.Error() != want {
			t.Errorf("the error is %q, want %q", first, want)
		}
	}, w)
}

// A flow that is used after its function has returned is of no use, and does no harm.
func TestFlowUsedAfterItsEnd(t *testing.T) {
	var kept *engine.Flow
	w := engine.MustFlow("kept", func(f *engine.Flow, _ int) (string, error) {
		kept = f
		return "ok", nil
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		if err := do(kept, "a"); !errors.Is(err, engine.ErrFlowOver) {
			t.Errorf("got %v", err)
		}
		wantRun(t, flowRun(t, e, run.ID), "succeeded", "ok")
	}, w)
}

// The goroutine of another function is a second goroutine, too.
func TestFlowUsedByAnotherFunction(t *testing.T) {
	t.Parallel()
	lent, result := make(chan *engine.Flow), make(chan error)
	lender := engine.MustFlow("lender", func(f *engine.Flow, _ int) (string, error) {
		lent <- f
		if err := <-result; !errors.Is(err, engine.ErrSecondGoroutine) {
			return "", fmt.Errorf("got %v", err)
		}
		return "ok", nil
	})
	borrower := engine.MustFlow("borrower", func(*engine.Flow, int) (string, error) {
		result <- do(<-lent, "b")
		return "ok", nil
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, lender, 0)
		wantRun(t, endOfFlow(t, e, startFlow(t, e, borrower, 0)), engine.StateSucceeded, "ok")
		synctest.Wait()
		wantRun(t, flowRun(t, e, id), engine.StateNeedsHandler, "operation b: called from a second goroutine")
	}, lender, borrower)
}

func TestFlowWithWrongParts(t *testing.T) {
	ok := func(*engine.Flow, int) (int, error) { return 0, nil }
	step := func(context.Context, int) (int, error) { return 0, nil }
	tests := []struct {
		name, want string
		make       func() (*engine.Workflow, error)
	}{
		{"no function", "no function", func() (*engine.Workflow, error) { return engine.NewFlow[int, int]("w", nil) }},
		{"steps beside the function", "a flow has no steps", func() (*engine.Workflow, error) {
			return engine.NewFlow("w", ok, engine.Step("a", step))
		}},
		{"a function without a flow", "function: only a workflow that NewFlow makes has one", func() (*engine.Workflow, error) {
			return engine.NewWorkflow("w", engine.Step("a", step), engine.Function(engine.MaxLost(1)))
		}},
		{"a timeout of the function", "total-timeout", func() (*engine.Workflow, error) {
			return engine.NewFlow("w", ok, engine.Function(engine.Policy("fixed(1s) total-timeout=1m")))
		}},
		{"an input that can't be stored", "can't be stored as JSON", func() (*engine.Workflow, error) {
			return engine.NewFlow("w", func(*engine.Flow, chan int) (int, error) { return 0, nil })
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := test.make(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
