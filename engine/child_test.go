package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// childTest has a parent workflow and its child workflow, and counts what they do.
type childTest struct {
	parent, child *engine.Workflow
	executed      atomic.Int32 // operations of children
	canceled      atomic.Int32 // operations of children whose context ended
}

// newChildren returns a parent that starts n children side by side. Each child sleeps for a day.
func newChildren(parallel int, opts ...engine.ChildOption) *childTest {
	f := new(childTest)
	many := []engine.ChildrenOption{engine.Parallel(parallel)}
	for _, opt := range opts {
		many = append(many, opt)
	}
	f.child = engine.MustFlow("child", func(f2 *engine.Flow, n int) (string, error) {
		if _, err := engine.Do(f2, "work", func(context.Context) (int, error) { f.executed.Add(1); return n, nil }); err != nil {
			return "", err
		}
		if err := engine.Sleep(f2, "day", day); err != nil {
			return "", err
		}
		if n == 13 {
			return "", errors.New("unlucky")
		}
		return fmt.Sprint("child ", n), nil
	})
	f.parent = engine.MustFlow("parent", func(f2 *engine.Flow, inputs []int) (string, error) {
		if len(inputs) == 1 {
			return engine.Child[string](f2, "one", f.child, inputs[0], opts...)
		}
		out, err := engine.Children[int, string](f2, "many", f.child, inputs, many...)
		return strings.Join(out, ","), err
	})
	return f
}

func TestChild(t *testing.T) {
	f := newChildren(0)
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, f.parent, []int{7})
		run := flowRun(t, e, id)
		op := operations(run, "child", "one")
		if run.State != engine.StateWaiting || len(op) != 1 || op[0].Child == "" || op[0].Status != "waiting" {
			t.Fatalf("%s: %+v", run.State, op)
		}
		child := flowRun(t, e, op[0].Child)
		if child.Parent != id || child.Source != "child of "+id || child.State != engine.StateWaiting {
			t.Errorf("the child: parent %q, source %q, %s", child.Parent, child.Source, child.State)
		}
		e.Crash()
		e.Restart()
		run = endOfFlow(t, e, id)
		wantRun(t, run, engine.StateSucceeded, `"child 7"`)
		if n := f.executed.Load(); n != 1 {
			t.Errorf("%d executions", n)
		}
		if op := operations(run, "child", "one"); op[0].Child != child.ID || string(op[0].Output) != `"child 7"` {
			t.Errorf("at the end: %+v", op[0])
		}
	}, f.parent, f.child)
}

func TestChildren(t *testing.T) {
	f := newChildren(3)
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		begin := time.Now()
		run := e.Run(f.parent, []int{1, 2, 3, 4, 5, 6, 7})
		wantRun(t, run, engine.StateSucceeded, `"child 1,child 2,child 3,child 4,child 5,child 6,child 7"`)
		if took := time.Since(begin); took < 3*day || took > 4*day {
			t.Errorf("7 children, 3 side by side, took %v", took)
		}
		for _, s := range run.Steps {
			if s.Kind == "children" && (s.Items == nil || s.Items.Total != 7 || s.Items.Succeeded != 7) {
				t.Errorf("%+v", s)
			}
		}
	}, f.parent, f.child)
}

// TestChildFails retries a parent whose child is dead: the child is retried.
func TestChildFails(t *testing.T) {
	f := newChildren(0)
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, f.parent, []int{13})
		run := endOfFlow(t, e, id)
		first := operations(run, "child", "one")[0]
		wantRun(t, run, engine.StateDead, "operation one: run "+first.Child+" is dead: unlucky")
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		run = endOfFlow(t, e, id)
		children := operations(run, "child", "one")
		if run.State != engine.StateDead || len(children) != 2 || children[1].Child != first.Child || f.executed.Load() != 1 {
			t.Errorf("%s: %+v", run.State, children)
		}
	}, f.parent, f.child)
}

// TestChildrenAreCanceled cancels a parent with 1000 children, and their children.
func TestChildrenAreCanceled(t *testing.T) {
	const n = 1000
	f := newChildren(n)
	top := engine.MustFlow("top", func(f2 *engine.Flow, inputs []int) (string, error) {
		return engine.Child[string](f2, "middle", f.parent, inputs)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		inputs := make([]int, n)
		for i := range inputs {
			inputs[i] = 100 + i
		}
		id := startFlow(t, e, top, inputs)
		time.Sleep(time.Hour)
		if err := e.Cancel(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateCanceled, "")
		synctest.Wait()
		for _, w := range []string{"parent", "child"} {
			page, err := e.List(t.Context(), engine.Filter{Workflow: w, Limit: 1000, Fresh: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range page.Runs {
				if run.State != engine.StateCanceled {
					t.Fatalf("run %s of %s is %s", run.ID, w, run.State)
				}
			}
			if want := map[string]int{"parent": 1, "child": n}[w]; len(page.Runs) != want {
				t.Errorf("%d runs of %s, want %d", len(page.Runs), w, want)
			}
		}
		if s, err := e.Stats(t.Context()); err != nil || s.Waiting != 0 {
			t.Errorf("%d timers are left, %v", s.Waiting, err)
		}
	}, f.parent, f.child, top)
}

// TestChildOfATimedOutParent has one child that is canceled and one that is detached.
func TestChildOfATimedOutParent(t *testing.T) {
	for _, detached := range []bool{false, true} {
		var opts []engine.ChildOption
		want := engine.StateCanceled
		if detached {
			opts, want = append(opts, engine.Detached()), engine.StateSucceeded
		}
		f := newChildren(0, opts...)
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, f.parent, []int{1}, engine.RunTimeout(time.Hour))
			run := endOfFlow(t, e, id)
			wantRun(t, run, engine.StateDead, "")
			child := operations(run, "child", "one")[0].Child
			wantRun(t, endOfFlow(t, e, child), want, "")
			e.Crash()
			e.Restart()
			if got := flowRun(t, e, child); got.State != want {
				t.Errorf("after a restart the child is %s, want %s", got.State, want)
			}
			if detached {
				return
			}
			if err := e.Retry(t.Context(), id, "tester"); err != nil {
				t.Fatal(err)
			}
			flowRun(t, e, id)
			run = flowRun(t, e, id)
			if again := operations(run, "child", "one"); len(again) < 1 || again[len(again)-1].Child == child {
				t.Errorf("after a retry: %+v", again)
			}
		}, f.parent, f.child)
	}
}

// TestChildThatContinues waits for the last run of a chain.
func TestChildThatContinues(t *testing.T) {
	child := engine.MustFlow("steps", func(f *engine.Flow, n int) (string, error) {
		if err := engine.Sleep(f, "day", day); err != nil {
			return "", err
		}
		if n < 3 {
			return "", engine.Again(f, n+1)
		}
		return "three", nil
	})
	parent := engine.MustFlow("parent", func(f *engine.Flow, _ int) (string, error) {
		return engine.Child[string](f, "one", child, 1)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		wantRun(t, e.Run(parent, 1), engine.StateSucceeded, `"three"`)
		id := startFlow(t, e, parent, 1)
		time.Sleep(36 * time.Hour)
		if err := e.Cancel(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		endOfFlow(t, e, id)
		synctest.Wait()
		page, err := e.List(t.Context(), engine.Filter{Workflow: "steps", States: []string{engine.StateWaiting, engine.StateRunning}, Fresh: true})
		if err != nil || len(page.Runs) != 0 {
			t.Errorf("%d children are left, %v", len(page.Runs), err)
		}
	}, parent, child)
}

func TestChildMistakes(t *testing.T) {
	other := engine.MustFlow("child", func(*engine.Flow, string) (string, error) { return "", nil })
	f := newChildren(0)
	for _, c := range []struct {
		name string
		call func(*engine.Flow) error
		text string
	}{
		{"no workflow", func(f *engine.Flow) error { _, err := engine.Child[int](f, "a", nil, 1); return err }, "operation a: the workflow is nil"},
		{"another workflow", func(f *engine.Flow) error { _, err := engine.Child[int](f, "a", other, "x"); return err }, `"child"`},
		{"a wrong input", func(f2 *engine.Flow) error { _, err := engine.Child[int](f2, "a", f.child, "x"); return err }, "operation a: input"},
		{"a wrong output", func(f2 *engine.Flow) error { _, err := engine.Child[int](f2, "a", f.child, 1); return err }, "operation a: its stored result can't be read as int"},
	} {
		w := engine.MustFlow("parent", func(f *engine.Flow, _ int) (int, error) { return 0, c.call(f) })
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, w, 1)
			time.Sleep(2 * day)
			if run := flowRun(t, e, id); !strings.Contains(run.Error, c.text) {
				t.Errorf("%s: %s: %q, want %q", c.name, run.State, run.Error, c.text)
			}
		}, w, f.child)
	}
}

// A run that waits for the workflow of a child continues when that is registered, and not when
// something else is.
func TestARunWaitsForTheWorkflowOfItsChild(t *testing.T) {
	var called atomic.Int32
	child := engine.MustFlow("child", func(*engine.Flow, int) (string, error) { return "done", nil })
	other := engine.MustFlow("other", func(*engine.Flow, int) (string, error) { return "", nil })
	parent := engine.MustFlow("parent", func(f *engine.Flow, _ int) (string, error) {
		called.Add(1)
		return engine.Child[string](f, "one", engine.Registered("child"), 1)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		s, err := e.Start(t.Context(), parent, 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if run, err := e.Get(t.Context(), s.ID); err != nil || run.State != engine.StateNeedsHandler {
			t.Fatalf("%+v, %v", run, err)
		}
		before := called.Load()
		if err := e.Register(other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if run, err := e.Get(t.Context(), s.ID); err != nil || run.State != engine.StateNeedsHandler || called.Load() != before {
			t.Fatalf("%+v, %v: called %d times, before %d", run, err, called.Load(), before)
		}
		if err := e.Register(child); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		run, err := e.Get(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		wantRun(t, run, "succeeded", `"done"`)
	}, parent)
}

// The input of a child that was started is not checked again: code that is deployed meanwhile may
// refuse it.
func TestTheInputOfAStartedChildIsNotCheckedAgain(t *testing.T) {
	var refuses atomic.Bool
	child := engine.MustFlow("child", func(f *engine.Flow, n int) (int, error) { return n, engine.Sleep(f, "long", time.Hour) },
		engine.PrepareInput(func(in json.RawMessage, _ time.Time) (json.RawMessage, error) {
			if refuses.Load() {
				return nil, errors.New("the input is out of fashion")
			}
			return in, nil
		}))
	parent := engine.MustFlow("parent", func(f *engine.Flow, _ int) (int, error) {
		var all []int
		err := engine.Branches(f,
			engine.Branch("children", func(f *engine.Flow) (err error) {
				all, err = engine.Children[int, int](f, "many", child, []int{1, 2, 3, 4})
				return err
			}),
			engine.Branch("other", func(f *engine.Flow) error { return engine.Sleep(f, "short", 10*time.Minute) }))
		return len(all), err
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		s, err := e.Start(t.Context(), parent, 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		refuses.Store(true) // the function is called again when the other branch continues
		run, err := e.Wait(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		wantRun(t, run, "succeeded", "4")
	}, parent, child)
}
