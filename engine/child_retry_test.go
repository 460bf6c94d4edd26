package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// chargingFamily has a child that charges and then ships, and a parent that waits for it. Shipping
// fails until it is repaired.
type chargingFamily struct {
	parent, child *engine.Workflow

	mu       sync.Mutex
	charges  []string // the idempotency key of each charge
	refunds  int
	repaired bool
	canUndo  bool
	many     bool
}

func newChargingFamily() *chargingFamily {
	c := new(chargingFamily)
	key := func(ctx context.Context) string {
		task, _ := engine.TaskOf(ctx)
		if task.Undos > 0 {
			return fmt.Sprint(task.Origin, "/", task.Step, "/", task.Undos)
		}
		return task.Origin + "/" + task.Step
	}
	charge := func(ctx context.Context) (string, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.charges = append(c.charges, key(ctx))
		return "charged", nil
	}
	c.child = engine.MustFlow("pay", func(f *engine.Flow, amount int) (string, error) {
		var err error
		if c.canUndo {
			_, err = engine.DoUndo(f, "charge", charge, func(context.Context, *string) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.refunds++
				return nil
			})
		} else {
			_, err = engine.Do(f, "charge", charge)
		}
		if err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "settle", time.Hour); err != nil {
			return "", err
		}
		return engine.Do(f, "ship", func(context.Context) (string, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !c.repaired {
				return "", retry.Permanent(engine.Coded("no-carrier", errors.New("no carrier")))
			}
			return fmt.Sprint("shipped ", amount), nil
		})
	})
	c.parent = engine.MustFlow("order", func(f *engine.Flow, amount int) (any, error) {
		if c.many {
			return engine.Children[int, string](f, "pay", c.child, []int{amount, amount + 1, amount + 2})
		}
		return engine.Child[string](f, "pay", c.child, amount)
	})
	return c
}

func (c *chargingFamily) repair() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repaired = true
}

// keys returns the number of charges, and the different keys of them.
func (c *chargingFamily) keys() (n int, keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.charges), slices.Compact(slices.Sorted(slices.Values(c.charges)))
}

// lastChild returns the id of the child of the operation that was called last.
func lastChild(t *testing.T, run *engine.Info) string {
	t.Helper()
	ops := operations(run, "child", "pay")
	if len(ops) == 0 {
		t.Fatalf("run %s has no child", run.ID)
	}
	return ops[len(ops)-1].Child
}

// A retry of a parent continues its child, in whatever state that is, and charges under one key.
func TestARetryOfAParentContinuesItsChild(t *testing.T) {
	type test struct {
		*testing.T
		*enginetest.Engine
		*chargingFamily
		parent, child string
	}
	for _, c := range []struct {
		name    string
		undo    bool
		before  func(t *test) // what becomes of the dead child before the retry
		charges int
		keys    int
		same    bool // the child is the same run
	}{
		{"dead", false, func(*test) {}, 1, 1, true},
		{"running", false, func(t *test) {
			if err := t.Retry(t.Context(), t.child, "tester"); err != nil {
				t.Fatal(err)
			}
		}, 1, 1, true},
		{"succeeded", false, func(t *test) {
			if err := t.Retry(t.Context(), t.child, "tester"); err != nil {
				t.Fatal(err)
			}
			wantRun(t.T, endOfFlow(t.T, t.Engine, t.child), engine.StateSucceeded, `"shipped 7"`)
		}, 1, 1, true},
		{"replaced", false, func(t *test) {
			next, err := t.Replay(t.Context(), t.child, nil, "tester")
			if err != nil {
				t.Fatal(err)
			}
			t.child = next.ID
		}, 2, 1, true},
		{"replaced and succeeded", false, func(t *test) {
			next, err := t.Replay(t.Context(), t.child, nil, "tester")
			if err != nil {
				t.Fatal(err)
			}
			t.child = next.ID
			wantRun(t.T, endOfFlow(t.T, t.Engine, t.child), engine.StateSucceeded, `"shipped 7"`)
		}, 2, 1, true},
		{"canceled", false, func(t *test) {
			if err := t.Cancel(t.Context(), t.child, "tester"); err != nil {
				t.Fatal(err)
			}
		}, 2, 1, false},
		{"undone", true, func(t *test) {}, 2, 2, true},
		{"undone and canceled", true, func(t *test) {
			if err := t.Cancel(t.Context(), t.child, "tester"); err != nil {
				t.Fatal(err)
			}
		}, 2, 2, false},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/crash=%v", c.name, crash), func(t *testing.T) {
				f := newChargingFamily()
				f.canUndo = c.undo
				enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
					w := &test{T: t, Engine: e, chargingFamily: f}
					w.parent = startFlow(t, e, f.parent, 7)
					run := endOfFlow(t, e, w.parent)
					wantRun(t, run, engine.StateDead, "")
					w.child = lastChild(t, run)
					f.repair()
					c.before(w)
					if err := e.Retry(t.Context(), w.parent, "tester"); err != nil {
						t.Fatal(err)
					}
					if crash {
						e.Crash()
						e.Restart()
					}
					run = endOfFlow(t, e, w.parent)
					wantRun(t, run, engine.StateSucceeded, `"shipped 7"`)
					n, keys := f.keys()
					if n != c.charges && !crash || len(keys) != c.keys { // an attempt that is lost is made again
						t.Errorf("%d charges with the keys %q; want %d and %d keys", n, keys, c.charges, c.keys)
					}
					if child := lastChild(t, run); (child == w.child) != c.same {
						t.Errorf("the child is %s, before %s", child, w.child)
					}
					if child := flowRun(t, e, lastChild(t, run)); c.name != "replaced and succeeded" && child.Parent != w.parent || child.State != engine.StateSucceeded {
						t.Errorf("the child is %s, with the parent %s", child.State, child.Parent)
					}
				}, f.parent, f.child)
			})
		}
	}
}

// The children of Children are continued, too: only the failed ones.
func TestARetryOfAParentContinuesItsChildren(t *testing.T) {
	f := newChargingFamily()
	f.many = true
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, f.parent, 7)
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "")
		f.repair()
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, `["shipped 7","shipped 8","shipped 9"]`)
		if n, keys := f.keys(); n != 3 || len(keys) != 3 {
			t.Errorf("%d charges: %q", n, keys)
		}
	}, f.parent, f.child)
}

// A run that repeats a parent starts its children with the origins of the children of that parent.
func TestAReplayOfAParentKeepsTheKeysOfItsChildren(t *testing.T) {
	f := newChargingFamily()
	f.many = true
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, f.parent, 7)
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "")
		for range 3 { // the last one repeats one that has succeeded
			e.Crash()
			e.Restart()
			next, err := e.Replay(t.Context(), id, nil, "tester")
			if err != nil {
				t.Fatal(err)
			}
			id = next.ID
			endOfFlow(t, e, id)
			f.repair()
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "")
		if n, keys := f.keys(); n != 12 || len(keys) != 3 {
			t.Errorf("%d charges: %q", n, keys)
		}
	}, f.parent, f.child)
}

// A parent that has timed out cancels its child. A retry starts another one, with the same key.
func TestARetryOfATimedOutParentKeepsTheKey(t *testing.T) {
	f := newChargingFamily()
	f.repair()
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, f.parent, 7, engine.RunTimeout(30*time.Minute))
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "")
		synctest.Wait()
		next, err := e.Replay(t.Context(), id, nil, "tester") // with the timeout of the workflow
		if err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, next.ID), engine.StateSucceeded, `"shipped 7"`)
		id = startFlow(t, e, f.parent, 8, engine.RunTimeout(30*time.Minute))
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "")
		for range 2 {
			synctest.Wait()
			if err := e.Retry(t.Context(), id, "tester"); err != nil {
				t.Fatal(err)
			}
			wantRun(t, endOfFlow(t, e, id), engine.StateDead, "")
		}
		if n, keys := f.keys(); n != 5 || len(keys) != 2 {
			t.Errorf("%d charges: %q", n, keys)
		}
	}, f.parent, f.child)
}

// A parent that undoes its operations does not cancel a detached child. A retry continues that child,
// whether it has ended or not.
func TestARetryOfAnUndoneParentContinuesItsDetachedChild(t *testing.T) {
	for _, after := range []time.Duration{0, day} {
		t.Run(after.String(), func(t *testing.T) {
			f := newChargingFamily()
			f.repair()
			parent := engine.MustFlow("trip", func(fl *engine.Flow, amount int) (string, error) {
				if _, err := engine.DoUndo(fl, "book", value(1), func(context.Context, *int) error { return nil }); err != nil {
					return "", err
				}
				return engine.Child[string](fl, "pay", f.child, amount, engine.Detached())
			})
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, parent, 7, engine.RunTimeout(50*time.Minute))
				run := endOfFlow(t, e, id)
				wantRun(t, run, engine.StateDead, "")
				child := lastChild(t, run)
				time.Sleep(after)
				mustDo(t, e.Retry(t.Context(), id, "tester"))
				run = endOfFlow(t, e, id)
				wantRun(t, run, engine.StateSucceeded, `"shipped 7"`)
				if n, keys := f.keys(); n != 1 || lastChild(t, run) != child {
					t.Errorf("%d charges with the keys %q; the child is %s, then %s", n, keys, child, lastChild(t, run))
				}
			}, parent, f.child)
		})
	}
}

// The code of the error that a child died of is that of the operation that waited for it.
func TestAParentGetsTheCodeOfItsChild(t *testing.T) {
	declined := retry.Permanent(engine.Coded("declined", errors.New("no money")))
	deny := func(context.Context) (int, error) { return 0, declined }
	children := map[string]*engine.Workflow{
		"function":  engine.MustFlow("function", func(*engine.Flow, int) (int, error) { return 0, declined }),
		"operation": engine.MustFlow("operation", func(f *engine.Flow, _ int) (int, error) { return engine.Do(f, "deny", deny) }),
		"undo": engine.MustFlow("undo", func(f *engine.Flow, _ int) (int, error) {
			if _, err := engine.DoUndo(f, "reserve", func(context.Context) (int, error) { return 1, nil }, func(context.Context, *int) error { return nil }); err != nil {
				return 0, err
			}
			return engine.Do(f, "deny", deny)
		}),
	}
	steps, err := engine.NewWorkflow("step", engine.Step("deny", func(ctx context.Context, _ int) (int, error) { return deny(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	children["step"] = steps
	children["grandchild"] = engine.MustFlow("grandchild", func(f *engine.Flow, _ int) (int, error) { return engine.Child[int](f, "one", children["function"], 1) })
	children["timeout"] = engine.MustFlow("timeout", func(f *engine.Flow, _ int) (int, error) { return 0, engine.Sleep(f, "day", day) }, engine.Timeout(time.Hour))
	parent := engine.MustFlow("parent", func(f *engine.Flow, name string) (string, error) {
		_, err := engine.Child[int](f, "one", children[name], 1)
		failed, _ := errors.AsType[*engine.OpError](err)
		return failed.Code, nil
	})
	all := []*engine.Workflow{parent}
	for _, w := range children {
		all = append(all, w)
	}
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		for name := range children {
			want := `"declined"`
			if name == "timeout" {
				want = `"timeout"`
			}
			wantRun(t, e.Run(parent, name), engine.StateSucceeded, want)
		}
	}, all...)
}

// A run that times out in a sleep has no attempt that was running.
func TestATimeoutInASleepNamesNoAttempt(t *testing.T) {
	w := engine.MustFlow("sleeper", func(f *engine.Flow, d time.Duration) (int, error) { return 0, engine.Sleep(f, "rest", d) }, engine.Timeout(500*time.Millisecond))
	busy := engine.MustFlow("busy", func(f *engine.Flow, d time.Duration) (int, error) {
		return engine.Do(f, "work", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
	}, engine.Timeout(time.Hour))
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		for _, d := range []time.Duration{900 * time.Millisecond, day} { // the function waits, or is suspended
			if run := e.Run(w, d); run.State != engine.StateDead || run.Error != "timed out after 500ms" {
				t.Errorf("after a sleep of %v: %s: %q", d, run.State, run.Error)
			}
		}
		if run := e.Run(busy, day); run.Error != "timed out after 1h0m0s while an attempt ran" {
			t.Errorf("in an attempt: %q", run.Error)
		}
	}, w, busy)
}

// A child that is not stored any more is replaced by one with the same key.
func TestARetryOfAParentReplacesAPurgedChild(t *testing.T) {
	f := newChargingFamily()
	late := engine.MustFlow("late", func(fl *engine.Flow, _ int) (string, error) {
		out, err := engine.Child[string](fl, "pay", f.child, 7)
		if sleepErr := engine.Sleep(fl, "week", 7*day); sleepErr != nil {
			return "", sleepErr
		}
		return out, err
	})
	cfg := engine.Config{Workflows: []*engine.Workflow{f.child, late}, DeadRetention: 2 * day, Retention: 2 * day}
	enginetest.TestConfig(t, cfg, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, late, 7)
		run := endOfFlow(t, e, id)
		wantRun(t, run, engine.StateDead, "")
		child := lastChild(t, run)
		if _, err := e.Get(t.Context(), child); !errors.Is(err, engine.ErrNotFound) {
			t.Fatalf("the child is not purged: %v", err)
		}
		f.repair()
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		run = endOfFlow(t, e, id)
		wantRun(t, run, engine.StateSucceeded, `"shipped 7"`)
		again := flowRun(t, e, lastChild(t, run))
		if again.ID == child || again.Origin != child {
			t.Errorf("the child is %s with the origin %s; before %s", again.ID, again.Origin, child)
		}
		if n, keys := f.keys(); n != 2 || len(keys) != 1 {
			t.Errorf("%d charges: %q", n, keys)
		}
	})
}

// A parent that has undone its own operations, and is retried, continues its child, too.
func TestARetryOfAnUndoneParentContinuesItsChild(t *testing.T) {
	f := newChargingFamily()
	booked := 0
	parent := engine.MustFlow("trip", func(fl *engine.Flow, amount int) (string, error) {
		book := func(context.Context) (int, error) { booked++; return booked, nil }
		if _, err := engine.DoUndo(fl, "book", book, func(context.Context, *int) error { return nil }); err != nil {
			return "", err
		}
		return engine.Child[string](fl, "pay", f.child, amount)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, parent, 7)
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "")
		e.Crash()
		e.Restart()
		f.repair()
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, `"shipped 7"`)
		if n, keys := f.keys(); n != 1 || booked != 2 {
			t.Errorf("%d charges with the keys %q, booked %d times", n, keys, booked)
		}
	}, parent, f.child)
}
