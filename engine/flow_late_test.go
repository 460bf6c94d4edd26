package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// An operation may end while the function that is called again has not asked for it yet: the
// function gets its result.
func TestFlowOperationEndsBeforeTheFunctionAsksForIt(t *testing.T) {
	nap := func(f *engine.Flow) (int, error) { return 7, engine.Sleep(f, "nap", 900*time.Millisecond) }
	work := func(f *engine.Flow) (int, error) {
		return engine.Do(f, "work", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			time.Sleep(5 * time.Second) // real clock: it runs in the bubble of enginetest
			return 7, nil
		})
	}
	pause := func(t *testing.T, e *enginetest.Engine, id string) {
		mustDo(t, e.Pause(t.Context(), id, "me"))
		flowRun(t, e, id)
		mustDo(t, e.Resume(t.Context(), id, "me"))
	}
	restart := func(_ *testing.T, e *enginetest.Engine, _ string) { e.Restart() }
	for name, test := range map[string]struct {
		operation func(*engine.Flow) (int, error)
		interrupt func(*testing.T, *enginetest.Engine, string)
	}{
		"a sleep, after a pause":      {nap, pause},
		"a sleep, after a restart":    {nap, restart},
		"an attempt, after a pause":   {work, pause},
		"an attempt, after a restart": {work, restart},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			w := engine.MustFlow("slow", func(f *engine.Flow, _ int) (int, error) {
				if calls.Add(1) > 1 {
					time.Sleep(10 * time.Second) // real clock: it runs in the bubble of enginetest
				}
				return test.operation(f)
			})
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, w, 1)
				flowRun(t, e, id)
				test.interrupt(t, e, id)
				time.Sleep(time.Hour)
				run := flowRun(t, e, id)
				if run.State != "succeeded" || string(run.Output) != "7" {
					t.Errorf("%s, output %s, %d calls", run.State, run.Output, calls.Load())
					mustDo(t, e.Cancel(t.Context(), id, "me"))
				}
			}, w)
		})
	}
}

// Items of a Map that never began do not count for the limit of operations.
func TestFlowCountsOnlyTheOperationsThatItCalled(t *testing.T) {
	w := engine.MustFlow("count", func(f *engine.Flow, _ int) (string, error) {
		fail := func(context.Context, int) (int, error) { return 0, retry.Permanent(errors.New("broken")) }
		if _, err := engine.Map(f, "first", make([]int, 15_000), fail, engine.Parallel(1)); err == nil {
			return "", errors.New("want an error")
		}
		_, err := engine.Map(f, "second", make([]int, 6000), fail, engine.Parallel(1))
		if failed, ok := errors.AsType[*engine.OpError](err); !ok || failed.Text != "broken" {
			return "", err
		}
		return "ok", nil
	})
	if run := enginetest.Run(t, w, 1); run.State != "succeeded" {
		t.Errorf("%s: %s", run.State, run.Error)
	}
}
