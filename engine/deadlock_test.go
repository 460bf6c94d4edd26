package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
)

// family is a workflow whose handler starts a run of another and waits for it.
type family struct {
	parent, child *Workflow
	e             *Engine // which the handler uses
}

// childTime is how long a child works.
const childTime = 10 * time.Minute

func newFamily(t *testing.T, step []StepOption, parts ...Part) *family {
	t.Helper()
	f := new(family)
	f.child = must(NewWorkflow("child", append(parts, Step("work", func(ctx context.Context, _ int) (int, error) {
		select {
		case <-time.After(childTime):
			return 1, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}, step...))...))
	f.parent = must(NewWorkflow("parent", Step("spawn", func(ctx context.Context, n int) (int, error) {
		time.Sleep(time.Second) // so that all parents have begun
		s, err := f.e.Start(ctx, f.child, n)
		if err != nil {
			return 0, err
		}
		_, err = s.Wait(ctx)
		return 0, err
	}, Policy("fixed(1s) attempts=1"))))
	return f
}

// newFlowFamily is newFamily with flows: an operation of the parent waits for the child, which has
// an operation that works.
func newFlowFamily(parts ...Part) *family {
	family := new(family)
	family.child = MustFlow("child", func(f *Flow, n int) (int, error) {
		return Do(f, "work", func(ctx context.Context) (int, error) {
			select {
			case <-time.After(childTime):
				return n, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
	}, parts...)
	family.parent = MustFlow("parent", func(f *Flow, n int) (int, error) {
		return Do(f, "spawn", func(ctx context.Context) (int, error) {
			time.Sleep(time.Second) // so that all parents have begun
			s, err := family.e.Start(ctx, family.child, n)
			if err != nil {
				return 0, err
			}
			_, err = s.Wait(ctx)
			return 0, err
		}, ForKey(fmt.Sprint(n)), Policy("fixed(1s) attempts=1"))
	})
	return family
}

// deadlocks returns the troubles that are deadlocks.
func deadlocks(e *Engine) (texts []string) {
	for _, t := range e.Troubles() {
		if strings.Contains(t.What, "deadlock") {
			texts = append(texts, t.Error)
		}
	}
	return texts
}

// wantDeadlock fails the test unless there is exactly one deadlock, whose text has these words.
func wantDeadlock(t *testing.T, e *Engine, words ...string) {
	t.Helper()
	list := deadlocks(e)
	if len(list) != 1 {
		t.Fatalf("%d deadlocks: %q; troubles %v", len(list), list, e.Troubles())
	}
	for _, word := range words {
		if !strings.Contains(list[0], word) {
			t.Errorf("%q does not have %q", list[0], word)
		}
	}
}

func wantNoDeadlock(t *testing.T, e *Engine, when string) {
	t.Helper()
	if list := deadlocks(e); len(list) != 0 {
		t.Fatalf("%s: %q", when, list)
	}
}

func TestADeadlockOfWaitingParentsIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, nil)
		f.e = opened(t, Config{Workflows: []*Workflow{f.parent, f.child}, Concurrency: 4})
		var parents []Started
		for n := range 8 {
			parents = append(parents, started(t, f.e, f.parent, n))
		}
		time.Sleep(5 * time.Second)
		wantDeadlock(t, f.e, "4 attempts of parent/spawn wait for 4 runs of child", "all 4 places of the process (concurrency) are taken", "OnEnd")
		if stats := must(f.e.Stats(t.Context())); len(stats.Troubles) != 1 || stats.Troubles[0].Since.IsZero() {
			t.Errorf("Stats has %v", stats.Troubles)
		}
		time.Sleep(time.Minute)
		wantDeadlock(t, f.e, "4 attempts of parent/spawn")
		// A place that is free is taken by a child or by the next parent; with the last
		// parents gone the children go on.
		for _, p := range parents {
			if err := f.e.Cancel(t.Context(), p.ID, "me"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		wantNoDeadlock(t, f.e, "after the parents were canceled")
		time.Sleep(3 * childTime)
		if s := must(f.e.Stats(t.Context())); s.Running != 0 || s.Queued != 0 {
			t.Errorf("%d attempts, %d queued at the end", s.Running, s.Queued)
		}
	})
}

func TestADeadlockOfFlowsIsReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config  Config
		parts   []Part
		parents int
		want    []string
	}{
		"of places": {
			Config{Concurrency: 4}, nil, 8,
			[]string{"4 attempts of parent/spawn wait for 4 runs of child", "all 4 places of the process (concurrency) are taken by attempts"},
		},
		"of calls of functions": {
			Config{Concurrency: 10, maxFunctions: 4}, nil, 8,
			[]string{"4 attempts of parent/spawn wait for 4 runs of child", "all 4 calls of functions that the process makes at once", "are taken by functions that wait"},
		},
		"of places, and functions that wait for one": {
			Config{Concurrency: 2, maxFunctions: 4}, nil, 8,
			[]string{"2 attempts of parent/spawn wait for 2 runs of child", "all 4 calls of functions"},
		},
		"none, with a place for a child":    {Config{Concurrency: 4}, nil, 3, nil},
		"none, with a call for a child":     {Config{Concurrency: 10, maxFunctions: 4}, nil, 3, nil},
		"none, with a child after the last": {Config{Concurrency: 10}, []Part{MaxRuns(1)}, 3, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFlowFamily(test.parts...)
				test.config.Workflows = []*Workflow{f.parent, f.child}
				f.e = opened(t, test.config)
				var parents []Started
				for n := range test.parents {
					parents = append(parents, started(t, f.e, f.parent, n))
				}
				if time.Sleep(5 * time.Second); test.want == nil {
					for range 60 {
						wantNoDeadlock(t, f.e, "a child is running")
						time.Sleep(childTime / 20)
					}
					for _, p := range parents {
						if i := waited(t, p); i.State != StateSucceeded {
							t.Errorf("%s: %s", i.State, i.Error)
						}
					}
					return
				}
				wantDeadlock(t, f.e, test.want...)
				for _, p := range parents {
					if err := f.e.Cancel(t.Context(), p.ID, "me"); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(5 * time.Second)
				wantNoDeadlock(t, f.e, "after the parents were canceled")
				time.Sleep(5 * childTime)
				if s := must(f.e.Stats(t.Context())); s.Running != 0 || s.Queued != 0 {
					t.Errorf("%d attempts, %d queued at the end", s.Running, s.Queued)
				}
			})
		})
	}
}

func TestWaitingParentsThatGoOnAreNoDeadlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, nil)
		f.e = opened(t, Config{Workflows: []*Workflow{f.parent, f.child}, Concurrency: 4})
		for n := range 3 {
			started(t, f.e, f.parent, n)
		}
		for range 60 { // one child at a time
			time.Sleep(childTime / 20)
			wantNoDeadlock(t, f.e, "a child is running")
		}
		if s := must(f.e.Stats(t.Context())); s.Running != 0 || s.Queued != 0 {
			t.Errorf("%d attempts, %d queued at the end", s.Running, s.Queued)
		}
		// All places wait, and the child has not begun because it is not due.
		later := must(NewWorkflow("later", Step("wait", func(ctx context.Context, n int) (int, error) {
			s := must(f.e.Start(ctx, f.child, n, In(time.Hour)))
			ctx, cancel := context.WithTimeout(ctx, time.Hour-time.Minute)
			defer cancel()
			_, _ = s.Wait(ctx)
			return 0, nil
		})))
		for n := range 4 {
			started(t, f.e, later, n)
		}
		for range 50 {
			time.Sleep(time.Minute)
			wantNoDeadlock(t, f.e, "the children are not due")
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestADeadlockOfALimitIsReported(t *testing.T) {
	t.Parallel()
	wait := func(e **Engine, w **Workflow) func(context.Context, int) (int, error) {
		return func(ctx context.Context, n int) (int, error) {
			if n == 0 {
				return 0, nil
			}
			s, err := (*e).Start(ctx, *w, n-1)
			if err == nil {
				_, err = s.Wait(ctx)
			}
			return 0, err
		}
	}
	for name, test := range map[string]struct {
		step  []StepOption
		parts []Part
		want  string
	}{
		"of a step":  {[]StepOption{Concurrency(2)}, nil, "all 2 places of step nested/do (its concurrency) are taken"},
		"of runs":    {nil, []Part{MaxRuns(2)}, "all 2 runs of workflow nested that may be in progress (its limit of runs) are taken"},
		"of neither": {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var e *Engine
				var w *Workflow
				w = must(NewWorkflow("nested", append(test.parts, Step("do", wait(&e, &w), append(test.step, Policy("fixed(1s) attempts=1"))...))...))
				e = opened(t, Config{Workflows: []*Workflow{w}})
				deep, flat := started(t, e, w, 1), started(t, e, w, 5)
				time.Sleep(5 * time.Second)
				if test.want == "" {
					wantNoDeadlock(t, e, "without a limit")
					if i := waited(t, flat); i.State != StateSucceeded {
						t.Errorf("%s: %s", i.State, i.Error)
					}
					return
				}
				wantDeadlock(t, e, test.want, "2 attempts of nested/do wait for")
				for _, s := range []Started{deep, flat} {
					_ = e.Cancel(t.Context(), s.ID, "me")
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

func TestARunThatWaitsForItselfIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e *Engine
		w := one(t, func(ctx context.Context, _ int) (int, error) {
			task, _ := TaskOf(ctx)
			_, err := e.Wait(ctx, task.Run)
			return 0, err
		}, Policy("fixed(1s) attempts=1"))
		e = opened(t, Config{Workflows: []*Workflow{w}})
		run := started(t, e, w, 1)
		time.Sleep(5 * time.Second)
		wantDeadlock(t, e, "1 attempt of one/do waits for 1 run of one", "wait for each other", run.ID)
	})
}

// TestADeadlockInAClusterIsReported has parents and children in several shards, of one
// process and of two.
func TestADeadlockInAClusterIsReported(t *testing.T) {
	t.Parallel()
	for processes := 1; processes <= 2; processes++ {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			t.Parallel()
			together(t, func(t *testing.T, s *memlog.Store) {
				var all []*member
				for n := range processes {
					f := newFamily(t, nil)
					m := joined(t, s, string(rune('a'+n)), Config{Workflows: []*Workflow{f.parent, f.child}, Concurrency: 2})
					f.e = m.Engine
					all = append(all, m)
				}
				settled(t, all...)
				// Two parents at a time go on: each process has a place for a child.
				parent, _ := all[0].Workflow("parent")
				var runs []Started
				for n := range 40 { // in all shards
					runs = append(runs, started(t, all[0].Engine, parent, n))
				}
				time.Sleep(3 * time.Minute)
				for _, m := range all {
					wantDeadlock(t, m.Engine, "2 attempts of parent/spawn wait for 2 runs of child", "raise the limit")
				}
				for _, run := range runs {
					if err := all[0].Cancel(t.Context(), run.ID, "me"); err != nil {
						t.Fatal(err)
					}
				}
				for range 10 {
					time.Sleep(time.Minute)
					for _, m := range all {
						wantNoDeadlock(t, m.Engine, "the children run")
					}
				}
				time.Sleep(time.Hour)
			})
		})
	}
}
