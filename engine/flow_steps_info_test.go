package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// TestSkip leaves out an operation, and calls it after a retry of the run.
func TestSkip(t *testing.T) {
	var wanted, works atomic.Bool
	w := engine.MustFlow("deploy", func(f *engine.Flow, _ int) (string, error) {
		if !wanted.Load() {
			if err := engine.Skip(f, "migrate"); err != nil {
				return "", err
			}
		} else if err := do(f, "migrate"); err != nil {
			return "", err
		}
		_, err := engine.Do(f, "switch", func(context.Context) (int, error) {
			if !works.Load() {
				return 0, errors.New("no")
			}
			return 1, nil
		}, engine.Policy("fixed(1s) attempts=1"))
		return "done", err
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		wantRun(t, run, engine.StateDead, "no")
		list := operations(run, "skip", "migrate")
		if len(list) != 1 || list[0].Status != "skipped" || list[0].Output != nil || run.Operations.Skipped != 1 || run.Operations.Succeeded != 0 {
			t.Errorf("the skipped operation is listed as %+v, the counts are %+v", list, run.Operations)
		}
		e.Crash()
		wanted.Store(true)
		works.Store(true)
		if err := e.Retry(t.Context(), run.ID, "tester"); err != nil {
			t.Fatal(err)
		}
		run = endOfFlow(t, e, run.ID)
		wantRun(t, run, engine.StateSucceeded, "done")
		if list := operations(run, "skip", "migrate"); len(list) != 0 || len(operations(run, "do", "migrate")) != 1 {
			t.Errorf("after the retry the run still lists %+v", list)
		}
	}, w)
}

// TestTaskAfterAnUndo has operations that are executed again after their undo: the task of each
// execution differs from that of the one before, also in a run that repeats the run.
func TestTaskAfterAnUndo(t *testing.T) {
	d := new(deeds)
	note := func(ctx context.Context) {
		task, _ := engine.TaskOf(ctx)
		d.add("%s %d", task.Step, task.Undos)
	}
	numbers := map[string][]int{}
	w := engine.MustFlow("order", func(f *engine.Flow, _ int) (int, error) {
		if _, err := engine.DoUndo(f, "reserve", func(ctx context.Context) (int, error) {
			note(ctx)
			task, _ := engine.TaskOf(ctx)
			numbers[task.Run] = append(numbers[task.Run], task.Operation)
			if task.Total == 1 {
				return 0, errors.New("once more") // all attempts of an execution have the same task
			}
			return 1, nil
		}, func(ctx context.Context, _ *int) error { note(ctx); return nil }); err != nil {
			return 0, err
		}
		return engine.Do(f, "charge", func(ctx context.Context) (int, error) {
			note(ctx)
			return 0, errors.New("no")
		}, engine.Policy("fixed(1s) attempts=1"))
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		if run.Reason != retry.StopAttempts.String() {
			t.Errorf("the reason is %s, want that of the operation that failed", run.Reason)
		}
		e.Crash()
		if err := e.Retry(t.Context(), run.ID, "tester"); err != nil {
			t.Fatal(err)
		}
		run = endOfFlow(t, e, run.ID)
		again, err := e.Replay(t.Context(), run.ID, nil, "tester")
		if err != nil {
			t.Fatal(err)
		}
		endOfFlow(t, e, again.ID)
		const one, two, three = "reserve 0, reserve 0, charge 0, undo:reserve 0", "reserve 1, reserve 1, charge 0, undo:reserve 1", "reserve 2, reserve 2, charge 0, undo:reserve 2"
		d.want(t, one+", "+two+", "+three)
		got := numbers[run.ID]
		if len(got) != 4 || got[0] != got[1] || got[2] != got[3] || got[0] == got[2] {
			t.Errorf("the numbers of the operation are %v", got)
		}
		var listed []int
		for _, o := range operations(run, "do", "reserve") {
			listed = append(listed, o.Number)
		}
		if !slices.Equal(listed, []int{got[0], got[2]}) {
			t.Errorf("the run lists the numbers %v, want those of the tasks: %v", listed, got)
		}
	}, w)
}

// TestGiveUpAfterAnUndoHasTheError wants the event of a run that gives up to say why, also if the
// operations of the run were undone before.
func TestGiveUpAfterAnUndoHasTheError(t *testing.T) {
	w := new(deeds).trip(func(f *engine.Flow) error { return errors.New("no seat is left") })
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		events := e.Events(t.Context(), 0)
		run := e.Run(w, 1)
		for ev := range events {
			if ev.Kind != retry.GaveUp || ev.Step != "" {
				continue
			}
			if ev.Run != run.ID || ev.Err == nil || ev.Err.Error() != "no seat is left" {
				t.Errorf("the event of the give-up is %+v", ev)
			}
			break
		}
	}, w)
}

func TestLabelsOfItems(t *testing.T) {
	long := strings.Repeat("ü", 100)
	w := engine.MustFlow("resize", func(f *engine.Flow, _ int) (int, error) {
		each := func(context.Context, string) (int, error) { return 1, nil }
		if _, err := engine.Map(f, "plain", []string{"a.png", long}, each); err != nil {
			return 0, err
		}
		images := []string{"x", "y"}
		_, err := engine.MapUndo(f, "labeled", images, each, func(context.Context, string, *int) error { return nil },
			engine.Labels(func(i int) string { return fmt.Sprintf("image %s", images[i]) }))
		if err != nil {
			return 0, err
		}
		return 0, errors.New("undo it")
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		got := map[string]string{}
		for _, s := range run.Steps {
			got[s.Kind+" "+s.Name] = s.Item
		}
		for op, want := range map[string]string{
			"item plain#0": `"a.png"`, "item plain#1": `"` + strings.Repeat("ü", 28) + "…",
			"item labeled#1": "image y", "undo labeled#1": "image y", "map labeled": "",
		} {
			if got[op] != want {
				t.Errorf("the label of %s is %s, want %s", op, got[op], want)
			}
		}
	}, w)
}

// TestDeclaredOperationsOfARun keeps the operations that the workflow declared when the run began.
func TestDeclaredOperationsOfARun(t *testing.T) {
	declare := func(ops ...engine.Part) *engine.Workflow {
		w, err := engine.NewWorkflow("w", append([]engine.Part{engine.CallFunction("script", script{"sleep"})}, ops...)...)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	before := declare(engine.Operation("fetch", "run"), engine.Operation("load", "http", engine.After("fetch")))
	enginetest.TestConfig(t, scripts, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, before, 1)
		flowRun(t, e, id)
		e.Crash(declare(engine.Operation("other", "run")))
		run := endOfFlow(t, e, id)
		if got := fmt.Sprint(run.Declared); got != "[{fetch run []} {load http [fetch]}]" {
			t.Errorf("the run declares %s", got)
		}
	})
}
