package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// before is the code with which runs begin. They wait in a sleep after it.
func before(executed *executions) *engine.Workflow {
	return engine.MustFlow("deploy", func(f *engine.Flow, _ int) (string, error) {
		if _, err := counted(f, executed, "a"); err != nil {
			return "", err
		}
		if _, err := engine.Map(f, "m", []int{1, 2}, func(context.Context, int) (int, error) { executed.add("m"); return 1, nil }); err != nil {
			return "", err
		}
		if _, err := counted(f, executed, "loop", engine.ForKey("k1")); err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "wait", day); err != nil {
			return "", err
		}
		return counted(f, executed, "last")
	}, engine.Function(engine.Version("1")))
}

func counted(f *engine.Flow, x *executions, name string, opts ...engine.DoOption) (string, error) {
	return engine.Do(f, name, func(context.Context) (string, error) {
		x.add(name)
		return name, nil
	}, opts...)
}

// A run that waits in its sleep is finished by other code.
func TestFlowChangedCode(t *testing.T) {
	tests := []struct {
		name  string
		do    func(f *engine.Flow, x *executions) (string, error)
		state string
		want  string
		ran   string // executions in all
	}{
		{"the same code", func(f *engine.Flow, x *executions) (string, error) {
			_, _ = counted(f, x, "a")
			_, _ = engine.Map(f, "m", []int{1, 2}, func(context.Context, int) (int, error) { x.add("m"); return 1, nil })
			_, _ = counted(f, x, "loop", engine.ForKey("k1"))
			_ = engine.Sleep(f, "wait", day)
			return counted(f, x, "last")
		}, "succeeded", "last", "map[a:1 last:1 loop:1 m:2]"},
		{"an added operation behind the place where the run stands", func(f *engine.Flow, x *executions) (string, error) {
			_, _ = counted(f, x, "a")
			_, _ = engine.Map(f, "m", []int{1, 2}, func(context.Context, int) (int, error) { x.add("m"); return 1, nil })
			_, _ = counted(f, x, "loop", engine.ForKey("k1"))
			_ = engine.Sleep(f, "wait", day)
			_, _ = engine.Now(f, "now")
			_, _ = counted(f, x, "new")
			return counted(f, x, "last")
		}, "succeeded", "last", "map[a:1 last:1 loop:1 m:2 new:1]"},
		{"an added operation before that place", func(f *engine.Flow, x *executions) (string, error) {
			_, _ = counted(f, x, "a")
			_, _ = counted(f, x, "new")
			return "added", engine.Sleep(f, "wait", time.Hour)
		}, engine.StateNeedsHandler, `a stored operation "m" that the function did not call before the new operation "new"`, "map[a:1 loop:1 m:2]"},
		{"an added time before that place", func(f *engine.Flow, x *executions) (string, error) {
			_, _ = engine.Now(f, "now")
			_, _ = counted(f, x, "a")
			return "added", engine.Sleep(f, "wait", time.Hour)
		}, engine.StateNeedsHandler, `a stored operation "a" that the function did not call before the new operation "now"`, "map[a:1 loop:1 m:2]"},
		{"a forgotten Renamed", func(f *engine.Flow, x *executions) (string, error) {
			_, _ = counted(f, x, "alpha")
			_, _ = engine.Map(f, "m", []int{1, 2}, func(context.Context, int) (int, error) { x.add("m"); return 1, nil })
			_, _ = counted(f, x, "loop", engine.ForKey("k1"))
			return "renamed", engine.Sleep(f, "wait", time.Hour)
		}, engine.StateNeedsHandler, `a stored operation "a" that the function did not call before the new operation "alpha"`, "map[a:1 loop:1 m:2]"},
		{"another order", func(f *engine.Flow, x *executions) (string, error) {
			_ = engine.Sleep(f, "wait", day)
			_, _ = counted(f, x, "loop", engine.ForKey("k1"))
			_, _ = engine.Map(f, "m", []int{1, 2}, func(context.Context, int) (int, error) { x.add("m"); return 1, nil })
			return counted(f, x, "a")
		}, "succeeded", "a", "map[a:1 loop:1 m:2]"},
		{"an operation that engine.Added names", func(f *engine.Flow, x *executions) (string, error) {
			engine.Added(f, "new", "loop[k2]", "n")
			_, _ = counted(f, x, "new")
			_, _ = engine.Map(f, "n", []int{1, 2}, func(context.Context, int) (int, error) { x.add("n"); return 1, nil })
			_, _ = counted(f, x, "a")
			_, _ = engine.Map(f, "m", []int{1, 2}, func(context.Context, int) (int, error) { x.add("m"); return 1, nil })
			_, _ = counted(f, x, "loop", engine.ForKey("k1"))
			_, _ = counted(f, x, "loop", engine.ForKey("k2"))
			return "added", engine.Sleep(f, "wait", time.Hour)
		}, "succeeded", "added", "map[a:1 loop:2 m:2 n:2 new:1]"},
		{"removed operations", func(f *engine.Flow, x *executions) (string, error) {
			engine.Removed(f, "a", "m", "loop[k1]")
			return "removed", engine.Sleep(f, "wait", time.Hour)
		}, "succeeded", "removed", "map[a:1 loop:1 m:2]"},
		{"operations that are not called", func(f *engine.Flow, x *executions) (string, error) {
			engine.Removed(f, "a", "loop[k1]")
			return "removed", engine.Sleep(f, "wait", time.Hour)
		}, engine.StateNeedsHandler, `a stored operation "m" that the function did not call`, "map[a:1 loop:1 m:2]"},
		{"renamed operations", func(f *engine.Flow, x *executions) (string, error) {
			engine.Renamed(f, "a", "alpha")
			engine.Renamed(f, "m", "many")
			engine.Renamed(f, "loop[k1]", "round[k2]")
			engine.Renamed(f, "wait", "rest")
			a, err := counted(f, x, "alpha")
			if err != nil {
				return "", err
			}
			if _, err := engine.Map(f, "many", []int{1, 2}, func(context.Context, int) (int, error) { x.add("many"); return 1, nil }); err != nil {
				return "", err
			}
			if _, err := counted(f, x, "round", engine.ForKey("k2")); err != nil {
				return "", err
			}
			return "renamed " + a, engine.Sleep(f, "rest", time.Hour)
		}, "succeeded", "renamed a", "map[a:1 loop:1 m:2]"},
		{"a branch on the version", func(f *engine.Flow, x *executions) (string, error) {
			engine.Removed(f, "a", "m", "loop[k1]", "wait")
			return "version " + f.Version(), nil
		}, "succeeded", "version 1", "map[a:1 loop:1 m:2]"},
		{"a stored result that has another type", func(f *engine.Flow, x *executions) (string, error) {
			engine.Removed(f, "m", "loop[k1]", "wait")
			_, err := engine.Do(f, "a", value(7))
			return "", err
		}, "dead", `operation a: its stored result can't be read as int`, "map[a:1 loop:1 m:2]"},
	}
	for _, test := range tests {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, crash %v", test.name, crash), func(t *testing.T) {
				var x executions
				old := before(&x)
				changed := engine.MustFlow("deploy", func(f *engine.Flow, _ int) (string, error) { return test.do(f, &x) },
					engine.Function(engine.Version("2")))
				enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
					id := startFlow(t, e, old, 1)
					flowRun(t, e, id)
					if crash {
						e.Crash(changed)
					} else {
						mustDo(t, e.Register(changed))
					}
					time.Sleep(day + time.Minute)
					run := flowRun(t, e, id)
					wantRun(t, run, test.state, test.want)
					if got := fmt.Sprint(x.n); got != test.ran {
						t.Errorf("%s were executed, want %s", got, test.ran)
					}
					if run.State != engine.StateNeedsHandler {
						return
					}
					e.Crash(old)
					wantRun(t, endOfFlow(t, e, id), "succeeded", "last")
				}, old)
			})
		}
	}
}

// An operation that waits for its next attempt can be renamed and removed too.
func TestFlowChangedCodeOfAWaitingOperation(t *testing.T) {
	for _, removed := range []bool{false, true} {
		var tries atomic.Int32
		op := func(context.Context) (int32, error) {
			if n := tries.Add(1); n > 1 {
				return n, nil
			}
			return 0, errors.New("no")
		}
		policy := engine.Policy("fixed(1h) attempts=3")
		old := engine.MustFlow("deploy", func(f *engine.Flow, _ int) (int32, error) { return engine.Do(f, "op", op, policy) })
		changed := engine.MustFlow("deploy", func(f *engine.Flow, _ int) (int32, error) {
			if removed {
				engine.Removed(f, "op")
				return -1, nil
			}
			engine.Renamed(f, "op", "operation")
			return engine.Do(f, "operation", op, policy)
		})
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, old, 1)
			flowRun(t, e, id)
			mustDo(t, e.Register(changed))
			run := endOfFlow(t, e, id)
			if removed {
				wantRun(t, run, "succeeded", "-1")
				return
			}
			wantRun(t, run, "succeeded", "2")
			if a := operations(run, "do", "op"); len(a) != 1 || len(a[0].Attempts) != 2 {
				t.Errorf("the attempts are %+v", a)
			}
		}, old)
	}
}

// A workflow that is not registered parks its runs, like a step without its handler.
func TestFlowWithoutItsCode(t *testing.T) {
	w := engine.MustFlow("gone", func(f *engine.Flow, _ int) (string, error) { return "ok", engine.Sleep(f, "s", time.Hour) })
	other := engine.MustFlow("other", func(*engine.Flow, int) (int, error) { return 1, nil })
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		flowRun(t, e, id)
		e.Crash(other)
		time.Sleep(2 * time.Hour)
		wantRun(t, flowRun(t, e, id), engine.StateNeedsHandler, "")
		mustDo(t, e.Register(w))
		wantRun(t, endOfFlow(t, e, id), "succeeded", "ok")
	}, w)
}

// endedRuns has the inputs of runs that OnEnd started.
type endedRuns struct {
	mu   sync.Mutex
	list []engine.Ended
}

func (r *endedRuns) add(e engine.Ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e)
}

func (r *endedRuns) all() []engine.Ended {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// A chain of runs: the key goes from run to run, and OnEnd follows only the last one.
func TestFlowAgain(t *testing.T) {
	var ended endedRuns
	onEnd := engine.MustFlow("on-end", func(_ *engine.Flow, in engine.Ended) (int, error) {
		ended.add(in)
		return 0, nil
	})
	w := engine.MustFlow("loop", func(f *engine.Flow, n int) (string, error) {
		if err := do(f, "work"); err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "rest", time.Hour); err != nil {
			return "", err
		}
		if n < 3 {
			return "", engine.Again(f, n+1)
		}
		return fmt.Sprint("end ", n), nil
	}, engine.OnEnd(onEnd))
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1, engine.Key("order"))
		for n := 1; n < 3; n++ {
			time.Sleep(time.Hour)
			run := flowRun(t, e, id)
			if run.State != "succeeded" || run.ContinuedBy == "" || run.Key != "order" || len(run.Output) > 0 || run.ReplacedBy != "" {
				t.Fatalf("run %d is %+v", n, run)
			}
			next := flowRun(t, e, run.ContinuedBy)
			if next.Key != "order" || next.Source != "continues "+id || string(next.Input) != fmt.Sprint(n+1) {
				t.Errorf("the next run is %+v", next)
			}
			if s, err := e.Start(t.Context(), w, 9, engine.Key("order")); err != nil || !s.Existing || s.ID != run.ContinuedBy {
				t.Errorf("Start with the key = %+v, %v", s, err)
			}
			id = run.ContinuedBy
			if n == 1 {
				e.Crash()
			} else {
				e.Restart()
			}
			if len(ended.all()) > 0 {
				t.Errorf("OnEnd was called: %+v", ended.all())
			}
		}
		run := endOfFlow(t, e, id)
		wantRun(t, run, "succeeded", "end 3")
		time.Sleep(time.Minute)
		if len(ended.all()) != 1 || ended.all()[0].Run != id || ended.all()[0].Key != "order" || ended.all()[0].State != "succeeded" {
			t.Errorf("OnEnd was called with %+v", ended.all())
		}
	}, w, onEnd)
}

// Each run of a chain has the timeout of the first one, from its own start. Without RunTimeout it is
// that of the workflow, as it is deployed.
func TestFlowAgainKeepsTheTimeout(t *testing.T) {
	version := func(timeout time.Duration) *engine.Workflow {
		return engine.MustFlow("loop", func(f *engine.Flow, n int) (int, error) {
			if err := engine.Sleep(f, "rest", time.Duration(n)*time.Hour); err != nil {
				return 0, err
			}
			return 0, engine.Again(f, n+1)
		}, engine.Timeout(timeout))
	}
	before, after := version(90*time.Minute), version(210*time.Minute)
	for name, test := range map[string]struct {
		opts  []engine.StartOption
		input string        // of the run that times out
		took  time.Duration // of the chain
	}{
		"of the workflow": {nil, "4", 6*time.Hour + 210*time.Minute},
		"of the run":      {[]engine.StartOption{engine.RunTimeout(150 * time.Minute)}, "3", 3*time.Hour + 150*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				begin := time.Now()
				id := startFlow(t, e, before, 1, test.opts...)
				flowRun(t, e, id)
				e.Restart(after)
				run := endOfFlow(t, e, id)
				wantRun(t, run, "dead", "")
				if took := run.Ended.Sub(begin); run.Reason != "timeout" || string(run.Input) != test.input || took != test.took {
					t.Errorf("run %s is dead (%s) after %v, want run %s after %v", run.Input, run.Reason, took, test.input, test.took)
				}
			}, before)
		})
	}
}

func TestFlowAgainWithWrongInput(t *testing.T) {
	tests := []struct {
		name, want string
		input      any
		parts      []engine.Part
	}{
		{"another type", "again: input: json: cannot unmarshal string", "text", nil},
		{"not JSON", "again: input: json: unsupported type: chan int", make(chan int), nil},
		{"refused by PrepareInput", "again: input: no number", 2, []engine.Part{
			engine.PrepareInput(func(in json.RawMessage, _ time.Time) (json.RawMessage, error) {
				if string(in) == "2" {
					return nil, errors.New("no number")
				}
				return in, nil
			}),
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := engine.MustFlow("loop", func(f *engine.Flow, n int) (int, error) { return 0, engine.Again(f, test.input) }, test.parts...)
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				wantRun(t, e.Run(w, 1), "dead", test.want)
			}, w)
		})
	}
}

func TestFlowAgainWithTooLargeInput(t *testing.T) {
	w := engine.MustFlow("loop", func(f *engine.Flow, in string) (int, error) {
		return 0, engine.Again(f, strings.Repeat("x", 300<<10))
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		wantRun(t, e.Run(w, "x"), "dead", "again: input: too large: ")
	}, w)
}

// A chain that never ends does not grow: each run has only its own operations.
func TestFlowAgainWithoutEnd(t *testing.T) {
	var rounds atomic.Int32
	w := engine.MustFlow("endless", func(f *engine.Flow, n int) (int, error) {
		if _, err := engine.Do(f, "round", func(context.Context) (int32, error) { return rounds.Add(1), nil }); err != nil {
			return 0, err
		}
		if err := engine.Sleep(f, "rest", time.Minute); err != nil {
			return 0, err
		}
		return 0, engine.Again(f, n+1)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		startFlow(t, e, w, 0, engine.Key("chain"))
		time.Sleep(100*time.Minute + time.Second)
		s, err := e.Start(t.Context(), w, 0, engine.Key("chain"))
		mustDo(t, err)
		run := flowRun(t, e, s.ID)
		if !s.Existing || string(run.Input) != "100" || rounds.Load() != 101 || len(run.Steps) != 3 {
			t.Errorf("run %s after %d rounds has %d steps", run.Input, rounds.Load(), len(run.Steps))
		}
		mustDo(t, e.Cancel(t.Context(), s.ID, "me"))
	}, w)
}
