package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// startFlow starts a run and returns its id.
func startFlow(t *testing.T, e *enginetest.Engine, w *engine.Workflow, input any, opts ...engine.StartOption) string {
	t.Helper()
	s, err := e.Start(t.Context(), w, input, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// flowRun returns the run as it is when nothing happens any more without time passing.
func flowRun(t *testing.T, e *enginetest.Engine, id string) *engine.Info {
	t.Helper()
	synctest.Wait()
	run, err := e.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// endOfFlow waits until the run has ended.
func endOfFlow(t *testing.T, e *enginetest.Engine, id string) *engine.Info {
	t.Helper()
	run, err := e.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// wantRun checks the state of a run, and that its error or output contains the text.
func wantRun(t *testing.T, run *engine.Info, state, text string) {
	t.Helper()
	got := run.Error
	if state == engine.StateSucceeded {
		got = string(run.Output)
	}
	if run.State != state || !strings.Contains(got, text) {
		t.Errorf("the run is %s: output %s, error %q; want %s with %q", run.State, run.Output, run.Error, state, text)
	}
}

// operation returns the operations of the run with this name and kind.
func operations(run *engine.Info, kind, name string) (found []engine.StepInfo) {
	for _, s := range run.Steps {
		if s.Kind == kind && s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// outcomesOf returns the outcomes of the attempts of an operation, in one text.
func outcomesOf(run *engine.Info, kind, name string) string {
	var list []string
	for _, s := range operations(run, kind, name) {
		for _, a := range s.Attempts {
			list = append(list, a.Outcome)
		}
	}
	return strings.Join(list, " ")
}

// value returns an operation that returns v.
func value[T any](v T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return v, nil }
}

// do fails the function's run if the operation fails: most functions of the tests need no more.
func do(f *engine.Flow, name string, opts ...engine.DoOption) error {
	_, err := engine.Do(f, name, value("done"), opts...)
	return err
}

// noteMost sets most to n if n is larger. Goroutines may call it at once.
func noteMost(most *atomic.Int32, n int32) {
	for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
	}
}

const day = 24 * time.Hour
