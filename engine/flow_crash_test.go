package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// executions counts the executions of operations by name.
type executions struct {
	mu sync.Mutex
	n  map[string]int
}

func (x *executions) add(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.n == nil {
		x.n = map[string]int{}
	}
	x.n[name]++
}

// crashFlow has all kinds of operations. Each takes some time, and it waits in between.
func crashFlow(x *executions) *engine.Workflow {
	op := func(name, result string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			x.add(name)
			select {
			// real clock: it runs in the bubble of enginetest
			case <-time.After(200 * time.Millisecond):
				return result, nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
	}
	return engine.MustFlow("crash", func(f *engine.Flow, lines []string) (string, error) {
		begin, err := engine.Now(f, "begin")
		if err != nil {
			return "", err
		}
		price, err := engine.Do(f, "price", op("price", "7"), engine.MaxLost(100))
		if err != nil {
			return "", err
		}
		held, err := engine.Map(f, "reserve", lines, func(ctx context.Context, line string) (string, error) {
			return op("reserve "+line, "held "+line)(ctx)
		}, engine.Parallel(2), engine.MaxLost(100))
		if err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "short", 700*time.Millisecond); err != nil {
			return "", err
		}
		between, err := engine.Now(f, "between")
		if err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "long", 3*day); err != nil {
			return "", err
		}
		end, err := engine.Now(f, "end")
		if err != nil {
			return "", err
		}
		if end.Sub(between) < 3*day || between.Sub(begin) < 700*time.Millisecond {
			return "", fmt.Errorf("a wait was shortened: %v, %v", between.Sub(begin), end.Sub(between))
		}
		shipped, err := engine.Do(f, "ship", op("ship", "shipped"), engine.MaxLost(100))
		return fmt.Sprint(price, " ", strings.Join(held, ","), " ", shipped), err
	}, engine.Function(engine.MaxLost(100)))
}

// The process is killed once, at each point of the run. Every result is recorded once, and only
// an operation that was running at the crash is executed again.
func TestFlowCrashAtEachPoint(t *testing.T) {
	points := []time.Duration{3 * day, 3*day + time.Second, 3*day + 1500*time.Millisecond, 3*day + 1750*time.Millisecond}
	for at := time.Duration(0); at < 2*time.Second; at += *crashEvery / 2 {
		points = append(points, at)
	}
	for _, at := range points {
		t.Run(at.String(), func(t *testing.T) {
			var x executions
			w := crashFlow(&x)
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, w, []string{"a", "b", "c"})
				time.Sleep(at)
				synctest.Wait()
				before := flowRun(t, e, id)
				e.Crash()
				run := endOfFlow(t, e, id)
				wantRun(t, run, "succeeded", "7 held a,held b,held c shipped")
				checkOnce(t, run)
				lost := map[string]bool{}
				for _, s := range before.Steps {
					if n := len(s.Attempts); n > 0 && s.Attempts[n-1].Outcome == "running" {
						lost[s.Name] = true
					}
				}
				for name, n := range x.n {
					op, line, isItem := strings.Cut(name, " ")
					if isItem {
						op = fmt.Sprintf("%s#%d", op, strings.Index("abc", line))
					}
					if n > 1 && !lost[op] || n > 2 {
						t.Errorf("%s was executed %d times, and was running at the crash: %v", name, n, lost[op])
					}
				}
			}, w)
		})
	}
}

// checkOnce checks that each operation of the run is there once, and has one result.
func checkOnce(t *testing.T, run *engine.Info) {
	t.Helper()
	seen := map[string]bool{}
	for _, s := range run.Steps {
		if name := s.Kind + " " + s.Name; seen[name] {
			t.Errorf("%s is there twice", name)
		} else {
			seen[name] = true
		}
		succeeded := 0
		for _, a := range s.Attempts {
			if a.Outcome == "succeeded" {
				succeeded++
			}
		}
		if s.Status != "succeeded" || succeeded > 1 {
			t.Errorf("%s %s is %s, and succeeded %d times", s.Kind, s.Name, s.Status, succeeded)
		}
	}
}

// The process is killed again and again.
func TestFlowCrashesOften(t *testing.T) {
	for _, every := range []time.Duration{130 * time.Millisecond, 310 * time.Millisecond, 1250 * time.Millisecond, 4 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			var x executions
			w := crashFlow(&x)
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				begin := time.Now()
				id := startFlow(t, e, w, []string{"a", "b", "c"})
				for range 30 {
					time.Sleep(every)
					e.Crash()
				}
				run := endOfFlow(t, e, id)
				wantRun(t, run, "succeeded", "7 held a,held b,held c shipped")
				if checkOnce(t, run); time.Since(begin) < 3*day {
					t.Errorf("the run took %v", time.Since(begin))
				}
			}, w)
		})
	}
}

// A suspended function is not called before its time, whatever happens to the process.
func TestFlowSuspendedIsNotCalledEarly(t *testing.T) {
	var calls, tries atomic.Int32
	w := engine.MustFlow("suspended", func(f *engine.Flow, _ int) (string, error) {
		calls.Add(1)
		_, err := engine.Do(f, "op", func(context.Context) (int, error) {
			if tries.Add(1) < 3 {
				return 0, errors.New("no")
			}
			return 3, nil
		}, engine.Policy("fixed(1h) attempts=3"))
		if err != nil {
			return "", err
		}
		return "ok", engine.Sleep(f, "long", day)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		begin := time.Now()
		id := startFlow(t, e, w, 1)
		for hour, want := range []int32{1, 2, 3} {
			time.Sleep(30 * time.Minute)
			e.Crash()
			if flowRun(t, e, id); calls.Load() != want || tries.Load() != want {
				t.Errorf("%d calls and %d attempts before hour %d, want %d", calls.Load(), tries.Load(), hour+1, want)
			}
			e.Restart()
			time.Sleep(30 * time.Minute)
			synctest.Wait()
		}
		if wantRun(t, endOfFlow(t, e, id), "succeeded", "ok"); calls.Load() != 4 || time.Since(begin) != 26*time.Hour {
			t.Errorf("%d calls in %v, want 4 in 26h", calls.Load(), time.Since(begin))
		}
	}, w)
}

// An operation that ends its process gives up after MaxLost losses. The function gets the error.
func TestFlowMaxLost(t *testing.T) {
	var executed atomic.Int32
	var got *engine.OpError
	w := engine.MustFlow("poison", func(f *engine.Flow, _ int) (string, error) {
		_, err := engine.Do(f, "poison", func(ctx context.Context) (int, error) {
			executed.Add(1)
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}, engine.MaxLost(2))
		if !errors.As(err, &got) {
			return "", fmt.Errorf("want an OpError, got %w", err)
		}
		return "handled", nil
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		for range 3 {
			time.Sleep(time.Minute)
			synctest.Wait()
			e.Crash()
		}
		wantRun(t, endOfFlow(t, e, id), "succeeded", "handled")
		if executed.Load() != 3 || got.Name != "poison" || !strings.Contains(got.Text, "the process died 3 times in a row") {
			t.Errorf("%d executions, error %+v", executed.Load(), got)
		}
	}, w)
}

// A function that ends its process makes the run dead after MaxLost losses.
func TestFlowMaxLostOfTheFunction(t *testing.T) {
	var calls atomic.Int32
	w := engine.MustFlow("poison", func(f *engine.Flow, _ int) (string, error) {
		if err := do(f, "first"); err != nil {
			return "", err
		}
		calls.Add(1)
		// real clock: it runs in the bubble of enginetest
		time.Sleep(10 * time.Minute)
		return "ok", nil
	}, engine.Function(engine.MaxLost(1)))
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		for range 2 {
			time.Sleep(time.Minute)
			synctest.Wait()
			e.Crash()
		}
		run := endOfFlow(t, e, id)
		if wantRun(t, run, "dead", "the process died 2 times in a row"); calls.Load() != 2 {
			t.Errorf("%d calls", calls.Load())
		}
		time.Sleep(time.Hour) // until the functions of the killed processes have returned
	}, w)
}

// Progress that an operation has saved survives the process.
func TestFlowSavedProgressSurvives(t *testing.T) {
	var got []string
	w := engine.MustFlow("progress", func(f *engine.Flow, _ int) (string, error) {
		return engine.Do(f, "op", func(ctx context.Context) (string, error) {
			task, _ := engine.TaskOf(ctx)
			if got = append(got, string(task.Progress)); len(got) > 1 {
				return "ok", nil
			}
			if err := engine.SaveProgress(ctx, "half"); err != nil {
				return "", err
			}
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		flowRun(t, e, id)
		e.Crash()
		wantRun(t, endOfFlow(t, e, id), "succeeded", "ok")
		if fmt.Sprint(got) != `[ "half"]` {
			t.Errorf("the attempts got %q", got)
		}
	}, w)
}

// Many runs side by side do not mix their operations.
func TestFlowRunsSideBySide(t *testing.T) {
	w := engine.MustFlow("side", func(f *engine.Flow, n int) (string, error) {
		a, err := engine.Do(f, "a", func(context.Context) (int, error) { return n, nil })
		if err != nil {
			return "", err
		}
		b, err := engine.Map(f, "b", []int{n, n + 1}, func(_ context.Context, i int) (int, error) { return i * i, nil })
		if err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "s", time.Duration(n)*time.Minute); err != nil {
			return "", err
		}
		return engine.Do(f, "c", func(context.Context) (string, error) { return fmt.Sprint(a, b), nil })
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		var ids []string
		for n := range 50 {
			ids = append(ids, startFlow(t, e, w, n))
		}
		time.Sleep(10 * time.Minute)
		e.Crash()
		for n, id := range ids {
			wantRun(t, endOfFlow(t, e, id), "succeeded", fmt.Sprintf("%q", fmt.Sprint(n, []int{n * n, (n + 1) * (n + 1)})))
		}
	}, w)
}
