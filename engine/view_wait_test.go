package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// freshState returns the state of a run in a list that must be fresh, "" if it is
// not there. Runs of one moment are in any order.
func freshState(t *testing.T, e *Engine, id string) string {
	t.Helper()
	for _, i := range must(e.List(t.Context(), Filter{Fresh: true})).Runs {
		if i.ID == id {
			return i.State
		}
	}
	return ""
}

// A list with Filter.Fresh includes everything that was acknowledged, although the view is written a
// little later.
func TestAFreshListHasWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	w := must(NewWorkflow("greet", Step("greet", func(_ context.Context, name string) (string, error) {
		if name == "missing" {
			return "", errors.New("no such person")
		}
		return "hello " + name, nil
	}, Policy("fixed(1ms) attempts=1"))))
	e := must(Open(t.Context(), Config{Dir: t.TempDir(), Workflows: []*Workflow{w}}))
	defer e.Close(context.Background())
	for n := range 10 {
		run := must(e.Start(t.Context(), w, "world", Key(fmt.Sprint("k", n))))
		if got := freshState(t, e, run.ID); got == "" {
			t.Fatalf("run %d was just started and is not in the list", n)
		}
		if _, err := run.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := freshState(t, e, run.ID); got != StateSucceeded {
			t.Fatalf("run %d has just succeeded and is listed as %q", n, got)
		}
	}
	run := must(e.Start(t.Context(), w, "missing"))
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if dead := must(e.FreshDeadGroups(t.Context(), 10)); len(dead.Groups) != 1 {
		t.Errorf("the groups of dead runs are %+v, want one", dead.Groups)
	}
	if err := e.Cancel(t.Context(), run.ID, "test"); err != nil {
		t.Fatal(err)
	}
	if dead := must(e.FreshDeadGroups(t.Context(), 10)); len(dead.Groups) != 0 {
		t.Errorf("the groups of dead runs are %+v, want none", dead.Groups)
	}
}
