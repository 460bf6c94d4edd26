package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// A Map begins no operation after a failure, and waits for those that it has begun.
func TestFlowMapWithAFailure(t *testing.T) {
	for _, wait := range []time.Duration{100 * time.Millisecond, time.Hour} {
		t.Run(wait.String(), func(t *testing.T) {
			var begun [6]atomic.Int32
			item := func(ctx context.Context, i int) (int, error) {
				switch n := begun[i].Add(1); {
				case i == 1:
					return 0, retry.Permanent(errors.New("broken"))
				case i == 2 && n == 1:
					return 0, engine.Snooze(wait, "later")
				}
				// real clock: it runs in the bubble of enginetest
				time.Sleep(time.Second) // until the failure is stored
				return 10 * i, nil
			}
			var got [][]int
			w := engine.MustFlow("map", func(f *engine.Flow, _ int) (string, error) {
				results, err := engine.Map(f, "m", []int{0, 1, 2, 3, 4, 5}, item, engine.Parallel(3))
				var m *engine.MapError
				var op *engine.OpError
				if !errors.As(err, &m) || len(m.Errors) != 1 || m.Errors[1] == nil || !errors.As(err, &op) || *op != *m.Errors[1] {
					return "", fmt.Errorf("want a MapError, got %w", err)
				}
				if want := (engine.OpError{Name: "m#1", Code: retry.StopPermanent.String(), Text: "broken"}); *op != want {
					t.Errorf("got %+v, want %+v", *op, want)
				}
				got = append(got, results)
				return err.Error(), engine.Sleep(f, "long", day)
			})
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				run := e.Run(w, 1)
				wantRun(t, run, "succeeded", "operation m#1: broken")
				if len(got) != 2 || fmt.Sprint(got[0]) != fmt.Sprint(got[1]) || fmt.Sprint(got[0][:3]) != "[0 0 20]" {
					t.Errorf("the results of the calls are %v", got)
				}
				if begun[2].Load() != 2 || begun[3].Load()+begun[4].Load()+begun[5].Load() != 0 {
					t.Errorf("item 2 was executed %d times, and later ones began", begun[2].Load())
				}
			}, w)
		})
	}
}

func TestFlowMapErrorOfSeveral(t *testing.T) {
	w := engine.MustFlow("map", func(f *engine.Flow, _ int) ([]int, error) {
		return engine.Map(f, "m", []int{0, 1, 2}, func(_ context.Context, i int) (int, error) {
			return 0, retry.Permanent(fmt.Errorf("failure %d", i))
		}, engine.ForKey("k"))
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		wantRun(t, e.Run(w, 1), "dead", "3 operations of m[k] failed, the first: operation m[k]#0: failure 0")
	}, w)
}

func TestFlowCollect(t *testing.T) {
	w := engine.MustFlow("collect", func(f *engine.Flow, _ int) (string, error) {
		outcomes, err := engine.Collect(f, "m", []int{0, 1, 2, 3}, func(_ context.Context, i int) (int, error) {
			if i%2 == 1 {
				return 0, retry.Permanent(engine.Coded("odd", fmt.Errorf("%d is odd", i)))
			}
			return 10 * i, nil
		}, engine.Parallel(1))
		if err != nil {
			return "", err
		}
		var b strings.Builder
		for _, o := range outcomes {
			fmt.Fprintf(&b, "%d %v,", o.Value, o.Err != nil && o.Err.Code == "odd")
		}
		return b.String(), nil
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		wantRun(t, e.Run(w, 1), "succeeded", "0 false,0 true,20 false,0 true,")
	}, w)
}

func TestFlowMapWithoutItems(t *testing.T) {
	w := engine.MustFlow("empty", func(f *engine.Flow, _ int) (string, error) {
		never := func(context.Context, int) (int, error) { return 0, errors.New("there is no item") }
		results, err := engine.Map(f, "m", nil, never)
		if err != nil || len(results) != 0 {
			return "", fmt.Errorf("%v, %w", results, err)
		}
		outcomes, err := engine.Collect(f, "c", []int{}, never)
		if err != nil || len(outcomes) != 0 {
			return "", fmt.Errorf("%v, %w", outcomes, err)
		}
		return "ok", engine.Sleep(f, "long", day)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		wantRun(t, e.Run(w, 1), "succeeded", "ok")
	}, w)
}

// Parallel limits how many operations run side by side. Results are in the order of the items.
func TestFlowParallel(t *testing.T) {
	for _, test := range []struct{ parallel, want int }{{1, 1}, {3, 3}, {0, 16}, {1000, 40}} {
		t.Run(fmt.Sprint(test.parallel), func(t *testing.T) {
			var running, most atomic.Int32
			items := make([]int, 40)
			for i := range items {
				items[i] = i
			}
			w := engine.MustFlow("parallel", func(f *engine.Flow, _ int) ([]int, error) {
				return engine.Map(f, "m", items, func(_ context.Context, i int) (int, error) {
					noteMost(&most, running.Add(1))
					// real clock: it runs in the bubble of enginetest
					time.Sleep(time.Duration(40-i) * time.Second)
					running.Add(-1)
					return i, nil
				}, engine.Parallel(test.parallel))
			})
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				run := e.Run(w, 1)
				if want := strings.ReplaceAll(fmt.Sprint(items), " ", ","); string(run.Output) != want {
					t.Errorf("got %s, want %s", run.Output, want)
				}
				if int(most.Load()) != test.want {
					t.Errorf("%d operations ran side by side, want %d", most.Load(), test.want)
				}
			}, w)
		})
	}
}

// A fan-out is joined with few calls of the function.
func TestFlowFanOut(t *testing.T) {
	var calls, executed atomic.Int32
	items := make([]int, 1000)
	w := engine.MustFlow("fan-out", func(f *engine.Flow, _ int) (int, error) {
		calls.Add(1)
		results, err := engine.Map(f, "m", items, func(context.Context, int) (int, error) {
			executed.Add(1)
			return 1, nil
		}, engine.Parallel(100))
		return len(results), err
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		wantRun(t, e.Run(w, 1), "succeeded", "1000")
		if calls.Load() != 1 || executed.Load() != 1000 {
			t.Errorf("%d calls, %d executions", calls.Load(), executed.Load())
		}
	}, w)
}

func TestFlowLimits(t *testing.T) {
	var errs []*engine.OpError
	note := func(err error) error {
		var op *engine.OpError
		if !errors.As(err, &op) {
			return fmt.Errorf("want an OpError, got %w", err)
		}
		errs = append(errs, op)
		return nil
	}
	many := engine.MustFlow("many", func(f *engine.Flow, _ int) (string, error) {
		for i := range 20_000 {
			if _, err := engine.Random(f, "r", engine.ForKey(fmt.Sprint(i))); err != nil {
				return "", err
			}
		}
		_, err := engine.Now(f, "one-more")
		if err := note(err); err != nil {
			return "", err
		}
		return "ok", note(do(f, "another"))
	})
	items := func(name string, n int) *engine.Workflow {
		return engine.MustFlow(name, func(f *engine.Flow, _ int) (string, error) {
			_, err := engine.Map(f, "m", make([]int, n), func(context.Context, int) (int, error) { return 0, nil })
			return "ok", note(err)
		})
	}
	fan, wide := items("fan", 20_000), items("wide", 300_000)
	large := engine.MustFlow("large", func(f *engine.Flow, _ int) (string, error) {
		text := strings.Repeat("x", 256<<10-2)
		for i := range 32 << 20 / (256 << 10) {
			if _, err := engine.Do(f, "part", value(text), engine.ForKey(fmt.Sprint(i))); err != nil {
				return "", err
			}
		}
		return "ok", note(do(f, "one-more"))
	})
	single := engine.MustFlow("single", func(f *engine.Flow, _ int) (string, error) {
		_, err := engine.Do(f, "part", value(strings.Repeat("x", 256<<10)))
		return "ok", note(err)
	})
	count := "a run can have at most 20000 operations; begin another run by engine.Again"
	tests := []struct {
		w    *engine.Workflow
		want []engine.OpError
	}{
		{many, []engine.OpError{{Name: "one-more", Code: "too-many-operations", Text: count}, {Name: "another", Code: "too-many-operations", Text: count}}},
		{fan, []engine.OpError{{Name: "m", Code: "too-many-operations", Text: count}}},
		{wide, []engine.OpError{{Name: "m", Code: "too-many-operations", Text: count}}},
		{large, []engine.OpError{{Name: "one-more", Code: "too-large", Text: "the results of the run would have more than 32 MiB; store them elsewhere and return references"}}},
		{single, []engine.OpError{{Name: "part", Code: retry.StopPermanent.String(), Text: "result of the operation: 262146 bytes, at most 262144 can be stored; store it elsewhere and return a reference"}}},
	}
	for _, test := range tests {
		t.Run(test.w.Name(), func(t *testing.T) {
			errs = nil
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				run := e.Run(test.w, 1)
				wantRun(t, run, "succeeded", "ok")
				if len(errs) != len(test.want) {
					t.Fatalf("got %q", errs)
				}
				for i, want := range test.want {
					if *errs[i] != want {
						t.Errorf("got %+v, want %+v", *errs[i], want)
					}
				}
			}, test.w)
		})
	}
}
