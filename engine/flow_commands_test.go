package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// situation is a flow that is in a situation when a command comes.
type situation struct {
	*engine.Workflow
	ops, last atomic.Int32 // executions of the operations
}

// situations are where a function can be. In each the run is finished by the operation "last".
var situations = []string{"running operation", "operation in a short retry", "operation in a long retry", "short sleep", "long sleep", "map", "code of the function"}

func newSituation(name string) *situation {
	s := new(situation)
	s.Workflow = engine.MustFlow("situation", func(f *engine.Flow, _ int) (string, error) {
		var err error
		failFirst := func(context.Context) (int, error) {
			if s.ops.Add(1) == 1 {
				return 0, errors.New("not yet")
			}
			return 1, nil
		}
		blockFirst := func(ctx context.Context) (int, error) {
			if s.ops.Add(1) > 1 {
				return 1, nil
			}
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}
		switch name {
		case "running operation":
			_, err = engine.Do(f, "op", blockFirst)
		case "operation in a short retry":
			_, err = engine.Do(f, "op", failFirst, engine.Policy("fixed(900ms) attempts=3"))
		case "operation in a long retry":
			_, err = engine.Do(f, "op", failFirst, engine.Policy("fixed(1h) attempts=3"))
		case "short sleep":
			err = engine.Sleep(f, "op", 900*time.Millisecond)
		case "long sleep":
			err = engine.Sleep(f, "op", time.Hour)
		case "map":
			_, err = engine.Map(f, "op", []int{1, 2, 3}, func(ctx context.Context, i int) (int, error) {
				switch {
				case i == 1:
					return 1, nil
				case i == 2:
					return blockFirst(ctx)
				}
				return 3, engine.Snooze(time.Hour, "")
			}, engine.Parallel(2))
			if err == nil {
				err = errors.New("the map must not end")
			}
		case "code of the function":
			if s.ops.Add(1) == 1 {
				// real clock: it runs in the bubble of enginetest
				time.Sleep(30 * time.Second)
			}
		}
		if err != nil {
			return "", err
		}
		return engine.Do(f, "last", func(context.Context) (string, error) {
			s.last.Add(1)
			return "finished", nil
		})
	})
	return s
}

// inSituations calls test with a run in each situation, 100 ms after its start.
func inSituations(t *testing.T, test func(t *testing.T, e *enginetest.Engine, name, id string, s *situation), opts ...engine.StartOption) {
	t.Helper()
	for _, name := range situations {
		if name == "map" {
			continue // it never ends
		}
		t.Run(name, func(t *testing.T) {
			s := newSituation(name)
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, s.Workflow, 1, opts...)
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				test(t, e, name, id, s)
			}, s.Workflow)
		})
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFlowCancel(t *testing.T) {
	inSituations(t, func(t *testing.T, e *enginetest.Engine, name, id string, s *situation) {
		ops := s.ops.Load()
		mustDo(t, e.Cancel(t.Context(), id, "me"))
		run := endOfFlow(t, e, id)
		wantRun(t, run, "canceled", "")
		time.Sleep(day)
		if s.last.Load() != 0 || s.ops.Load() != ops {
			t.Errorf("%d and %d executions after the end", s.ops.Load()-ops, s.last.Load())
		}
		if got := outcomesOf(flowRun(t, e, id), "do", "op"); name == "running operation" && got != "late" {
			t.Errorf("the attempts are %q", got)
		}
		mustDo(t, e.Register(s.Workflow))
		if err := e.Retry(t.Context(), id, "me"); !errors.Is(err, engine.ErrState) {
			t.Errorf("Retry = %v", err)
		}
	})
}

func TestFlowTimeout(t *testing.T) {
	inSituations(t, func(t *testing.T, e *enginetest.Engine, name, id string, s *situation) {
		begin := time.Now()
		run := endOfFlow(t, e, id)
		wantRun(t, run, "dead", "")
		inRetry := strings.Contains(name, "retry") // it gives up, because its wait is longer than the run may take
		if s.last.Load() != 0 || run.Reason != retry.StopTimeout.String() && !inRetry {
			t.Errorf("the run is dead because of %q, after %v", run.Reason, time.Since(begin))
		}
		if name == "code of the function" {
			// The function is still running: it must not be called beside itself.
			if err := e.Retry(t.Context(), id, "me"); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "has not returned") {
				t.Errorf("Retry = %v", err)
			}
			time.Sleep(time.Minute)
		}
		mustDo(t, e.Retry(t.Context(), id, "me"))
		if name == "long sleep" { // it takes longer than the run may take, again
			wantRun(t, endOfFlow(t, e, id), "dead", "")
			time.Sleep(time.Hour)
			mustDo(t, e.Retry(t.Context(), id, "me"))
		}
		if wantRun(t, endOfFlow(t, e, id), "succeeded", "finished"); s.last.Load() != 1 {
			t.Errorf("%d executions", s.last.Load())
		}
	}, engine.RunTimeout(500*time.Millisecond))
}

func TestFlowPause(t *testing.T) {
	inSituations(t, func(t *testing.T, e *enginetest.Engine, name, id string, s *situation) {
		mustDo(t, e.Pause(t.Context(), id, "me"))
		time.Sleep(2 * time.Hour)
		if run := flowRun(t, e, id); run.State != engine.StatePaused || s.last.Load() != 0 {
			t.Errorf("the run is %s, and the last operation ran %d times", run.State, s.last.Load())
		}
		mustDo(t, e.Resume(t.Context(), id, "me"))
		resumed := time.Now()
		run := endOfFlow(t, e, id)
		if wantRun(t, run, "succeeded", "finished"); s.last.Load() != 1 || time.Since(resumed) > time.Second {
			t.Errorf("%d executions, %v after the run was resumed", s.last.Load(), time.Since(resumed))
		}
		if got := outcomesOf(run, "do", "op"); name == "running operation" && got != "released succeeded" {
			t.Errorf("the attempts are %q", got)
		}
	})
}

// A pause that is over before the attempt of an operation has returned: the next call of the
// function waits for the same attempt.
func TestFlowPauseWhileAnAttemptEnds(t *testing.T) {
	for _, size := range []int{1, 2} {
		var runs atomic.Int32
		w := engine.MustFlow("slow", func(f *engine.Flow, _ int) ([]int, error) {
			slow := func(ctx context.Context, i int) (int, error) {
				runs.Add(1)
				<-ctx.Done()
				// real clock: it runs in the bubble of enginetest
				time.Sleep(5 * time.Second) // less than the grace time
				return i + 1, nil
			}
			if size == 1 {
				n, err := engine.Do(f, "op", func(ctx context.Context) (int, error) { return slow(ctx, 0) })
				return []int{n}, err
			}
			return engine.Map(f, "op", []int{0, 1}, slow)
		})
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, w, 1)
			flowRun(t, e, id)
			mustDo(t, e.Pause(t.Context(), id, "me"))
			mustDo(t, e.Resume(t.Context(), id, "me"))
			want := map[int]string{1: "[1]", 2: "[1,2]"}[size]
			if wantRun(t, endOfFlow(t, e, id), "succeeded", want); int(runs.Load()) != size {
				t.Errorf("%d attempts of %d operations", runs.Load(), size)
			}
		}, w)
	}
}

func TestFlowPostpone(t *testing.T) {
	inSituations(t, func(t *testing.T, e *enginetest.Engine, name, id string, s *situation) {
		until := time.Now().Add(3 * time.Hour)
		mustDo(t, e.Postpone(t.Context(), id, until, "me"))
		time.Sleep(3*time.Hour - time.Minute)
		if run := flowRun(t, e, id); run.State != engine.StateWaiting || s.last.Load() != 0 {
			t.Errorf("the run is %s, and the last operation ran %d times", run.State, s.last.Load())
		}
		if wantRun(t, endOfFlow(t, e, id), "succeeded", "finished"); s.last.Load() != 1 || time.Now().Before(until) || time.Since(until) > time.Second {
			t.Errorf("%d executions, %v after the time", s.last.Load(), time.Since(until))
		}
	})
}

func TestFlowWake(t *testing.T) {
	inSituations(t, func(t *testing.T, e *enginetest.Engine, name, id string, s *situation) {
		err := e.Wake(t.Context(), id, "me")
		if name == "running operation" || name == "code of the function" {
			if !errors.Is(err, engine.ErrState) {
				t.Errorf("Wake = %v", err)
			}
			mustDo(t, e.Cancel(t.Context(), id, "me"))
			time.Sleep(time.Minute)
			return
		}
		mustDo(t, err)
		begin := time.Now()
		if wantRun(t, endOfFlow(t, e, id), "succeeded", "finished"); time.Since(begin) != 0 || s.last.Load() != 1 {
			t.Errorf("%d executions, %v after it was woken", s.last.Load(), time.Since(begin))
		}
	})
}

func TestFlowReset(t *testing.T) {
	inSituations(t, func(t *testing.T, e *enginetest.Engine, name, id string, s *situation) {
		mustDo(t, e.Reset(t.Context(), id, "me"))
		if name == "running operation" {
			mustDo(t, e.Pause(t.Context(), id, "me"))
			synctest.Wait()
			mustDo(t, e.Resume(t.Context(), id, "me"))
		}
		if wantRun(t, endOfFlow(t, e, id), "succeeded", "finished"); s.last.Load() != 1 {
			t.Errorf("%d executions", s.last.Load())
		}
	})
}

// A run that is paused while it is suspended is not called when its wait ends.
func TestFlowPausedSleepEndsAfterItsTime(t *testing.T) {
	var calls atomic.Int32
	w := engine.MustFlow("sleep", func(f *engine.Flow, _ int) (string, error) {
		calls.Add(1)
		return "ok", engine.Sleep(f, "long", day)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		begin := time.Now()
		id := startFlow(t, e, w, 1)
		flowRun(t, e, id)
		mustDo(t, e.Pause(t.Context(), id, "me"))
		time.Sleep(time.Hour)
		mustDo(t, e.Resume(t.Context(), id, "me"))
		if wantRun(t, endOfFlow(t, e, id), "succeeded", "ok"); time.Since(begin) != day || calls.Load() != 2 {
			t.Errorf("%d calls in %v, want 2 in %v", calls.Load(), time.Since(begin), day)
		}
	}, w)
}

// Close during each situation: nothing is lost, and no goroutine is left.
func TestFlowClose(t *testing.T) {
	for _, name := range situations {
		t.Run(name, func(t *testing.T) {
			s := newSituation(name)
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, s.Workflow, 1)
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				e.Restart()
				if name == "map" {
					mustDo(t, e.Cancel(t.Context(), id, "me"))
					return
				}
				run := endOfFlow(t, e, id)
				if wantRun(t, run, "succeeded", "finished"); s.last.Load() != 1 {
					t.Errorf("%d executions", s.last.Load())
				}
				if got := outcomesOf(run, "do", "op"); strings.Contains(got, "lost") {
					t.Errorf("the attempts are %q", got)
				}
			}, s.Workflow)
		})
	}
}
