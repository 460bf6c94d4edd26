package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// script is a flow that is described by data: what its runs do, in order.
type script []string

// runScript is the function of scripts. "sleep" sleeps for a day, "child NAME" starts a child, and
// other words are operations whose result is the word.
func runScript(f *engine.Flow, input json.RawMessage) ([]byte, error) {
	var do script
	t := f.Task()
	if err := json.Unmarshal(t.Args, &do); err != nil {
		return nil, err
	}
	said := []string{t.Workflow, t.Key, string(input)}
	for i, word := range do {
		key := engine.ForKey(fmt.Sprint(i))
		name, child := strings.CutPrefix(word, "child ")
		var err error
		switch {
		case word == "sleep":
			err = engine.Sleep(f, "day", day, key)
		case child:
			word, err = engine.Child[string](f, "child", engine.Registered(name), nil, key)
		default:
			word, err = engine.Do(f, "say", func(context.Context) (string, error) { return word, nil }, key)
		}
		if err != nil {
			return nil, err
		}
		said = append(said, word)
	}
	return json.Marshal(strings.Join(said, " "))
}

func newScript(t *testing.T, name string, do ...string) *engine.Workflow {
	t.Helper()
	w, err := engine.NewWorkflow(name, engine.CallFunction("script", script(do)))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var scripts = engine.Config{Functions: map[string]engine.FlowFunc{"script": runScript}}

// A run of a flow that is described by data continues with the description that it began with: if
// the workflow is changed, has steps now, or is gone.
func TestFunctionKeepsItsArguments(t *testing.T) {
	plain, err := engine.NewWorkflow("w", engine.Step("only", func(context.Context, any) (int, error) { return 1, nil }))
	if err != nil {
		t.Fatal(err)
	}
	for name, after := range map[string]*engine.Workflow{
		"changed": newScript(t, "w", "x", "sleep"), "steps": plain, "gone": newScript(t, "other", "x"),
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.TestConfig(t, scripts, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, newScript(t, "w", "a", "sleep", "b"), 5, engine.Key("k"))
				if run := flowRun(t, e, id); run.State != engine.StateWaiting {
					t.Fatalf("%s: %s", run.State, run.Error)
				}
				e.Crash(after)
				wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "w k 5 a sleep b")
			})
		})
	}
}

// countDown is the function of a flow that is described by data: after a day it begins another run
// with the next smaller number, until that is 0.
func countDown(f *engine.Flow, input json.RawMessage) ([]byte, error) {
	var n int
	if err := json.Unmarshal(input, &n); err != nil {
		return nil, err
	}
	if err := engine.Sleep(f, "day", day); err != nil {
		return nil, err
	}
	said, err := engine.Do(f, "say", func(context.Context) (string, error) { return fmt.Sprint(n), nil })
	if err != nil {
		return nil, err
	}
	if n > 0 {
		return nil, engine.Again(f, n-1)
	}
	var mark string
	err = json.Unmarshal(f.Task().Args, &mark)
	return []byte(strconv.Quote(said + mark)), err
}

// Runs of a flow that is described by data begin other runs by Again, with the same arguments, after
// their workflow is gone. Their operations count as those of the workflow.
func TestFunctionBeginsAgainWithoutItsWorkflow(t *testing.T) {
	config := engine.Config{Functions: map[string]engine.FlowFunc{"count-down": countDown}}
	w, err := engine.NewWorkflow("w", engine.CallFunction("count-down", "!"))
	if err != nil {
		t.Fatal(err)
	}
	enginetest.TestConfig(t, config, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 2, engine.Key("k"))
		flowRun(t, e, id) // it sleeps
		e.Crash(newScript(t, "other"))
		run := endOfFlow(t, e, id)
		for run.ContinuedBy != "" {
			run = endOfFlow(t, e, run.ContinuedBy)
		}
		wantRun(t, run, engine.StateSucceeded, "0!")
		stats, err := e.Stats(t.Context())
		if err != nil || len(stats.Workflows) != 1 || stats.Workflows[0].Name != "w" || stats.Workflows[0].Totals.Attempts != 3 {
			t.Errorf("%v %+v", err, stats.Workflows)
		}
	})
}

// A run whose function is not registered waits until it is.
func TestFunctionThatIsMissing(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, newScript(t, "w", "a"), nil)
		time.Sleep(time.Hour)
		if run := flowRun(t, e, id); run.State != engine.StateNeedsHandler {
			t.Errorf("%s: %s", run.State, run.Error)
		}
	})
}

// A child of a registered workflow is started from the workflow that has the name then. If there is
// none, the run waits until there is one. A child that was started ends without its workflow.
func TestChildOfARegisteredWorkflow(t *testing.T) {
	enginetest.TestConfig(t, scripts, func(t *testing.T, e *enginetest.Engine) {
		parent := newScript(t, "parent", "child leaf", "end")
		id := startFlow(t, e, parent, nil)
		if run := flowRun(t, e, id); run.State != engine.StateNeedsHandler || !strings.Contains(run.Error, `there is no workflow "leaf" now`) {
			t.Fatalf("%s: %s", run.State, run.Error)
		}
		if err := e.Replace([]*engine.Workflow{newScript(t, "parent", "other"), newScript(t, "leaf", "sleep", "old")}); err != nil {
			t.Fatal(err)
		}
		run := flowRun(t, e, id)
		if run.State != engine.StateWaiting || len(operations(run, "child", "child[0]")) != 1 {
			t.Fatalf("%s: %s %+v", run.State, run.Error, run.Steps)
		}
		e.Crash(newScript(t, "other")) // both workflows are gone
		run = endOfFlow(t, e, id)
		wantRun(t, run, engine.StateSucceeded, "parent  null leaf  null sleep old end")
	})
}

// A declared operation has a limit of its own, in all runs together, and lists of workflows have
// it.
func TestOperationConcurrency(t *testing.T) {
	var now, most atomic.Int32
	w := engine.MustFlow("w", func(f *engine.Flow, _ any) (any, error) {
		return engine.Map(f, "deploy", []int{1, 2, 3, 4}, func(context.Context, int) (int, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			// real clock: it runs in the bubble of enginetest
			time.Sleep(time.Minute)
			return 1, nil
		})
	}, engine.Operation("deploy", "run", engine.Concurrency(2), engine.Policy("fixed(1s) attempts=2"), engine.After("build")))
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		ids := []string{startFlow(t, e, w, nil), startFlow(t, e, w, nil)}
		for _, id := range ids {
			wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "[1,1,1,1]")
		}
	}, w)
	if most.Load() != 2 {
		t.Errorf("%d attempts at once, want 2", most.Load())
	}
	if s := w.Steps(); len(s) != 1 || s[0].Name != "deploy" || s[0].Handler != "run" || s[0].Policy != "fixed(1s) attempts=2" || fmt.Sprint(s[0].Needs) != "[build]" {
		t.Errorf("%+v", s)
	}
	if !w.Limited() {
		t.Error("the workflow has no limit")
	}
}

// A result that is JSON already is stored as it is.
func TestResultIsNotEscaped(t *testing.T) {
	w := engine.MustFlow("w", func(f *engine.Flow, _ any) (int, error) {
		out, err := engine.Do(f, "html", func(context.Context) (json.RawMessage, error) {
			return json.RawMessage(`"` + strings.Repeat("<", 200<<10) + `"`), nil
		})
		return len(out), err
	})
	run := enginetest.Run(t, w, nil)
	wantRun(t, run, engine.StateSucceeded, fmt.Sprint(200<<10+2))
}

func TestOptionsOfADeclaredOperation(t *testing.T) {
	_, err := engine.NewWorkflow("w", engine.CallFunction("f", nil),
		engine.Operation("b", "run"), engine.Operation("a", "run", engine.After("b"), engine.Policy("fixed(1s) attempts=2"), engine.MaxLost(3), engine.Concurrency(2)))
	if err != nil {
		t.Error(err)
	}
}
