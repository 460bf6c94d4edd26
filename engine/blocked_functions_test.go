package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// A function that waits for something that is not an operation is reported, with its run, and nothing
// else is.
func TestABlockedFunctionIsAWarning(t *testing.T) {
	t.Parallel()
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		block := make(chan struct{})
		slow := func(context.Context) (int, error) { time.Sleep(30 * time.Minute); return 0, nil }
		flow := func(name string, do func(f *engine.Flow) error) *engine.Workflow {
			return engine.MustFlow(name, func(f *engine.Flow, _ int) (int, error) { return 0, do(f) })
		}
		wants := map[string]bool{}
		for _, test := range []struct {
			name    string
			blocked bool
			do      func(f *engine.Flow) error
		}{
			{"at-once", true, func(*engine.Flow) error { <-block; return nil }},
			{"after-an-operation", true, func(f *engine.Flow) error { err := do(f, "first"); <-block; return err }},
			{"after-a-sleep", true, func(f *engine.Flow) error { err := engine.Sleep(f, "s", 2*time.Second); <-block; return err }},
			{"in-a-branch", true, func(f *engine.Flow) error {
				return engine.Branches(f,
					engine.Branch("waits", func(f *engine.Flow) error { return engine.Sleep(f, "s", time.Minute) }),
					engine.Branch("blocks", func(f *engine.Flow) error { err := do(f, "first"); <-block; return err }),
				)
			}},
			{"in-an-operation", false, func(f *engine.Flow) error { _, err := engine.Do(f, "slow", slow); return err }},
			{"sleeps", false, func(f *engine.Flow) error { return engine.Sleep(f, "s", time.Hour) }},
			{"awaits", false, func(f *engine.Flow) error {
				_, err := engine.Await[int](f, "signal", engine.Within(time.Hour))
				_ = err
				return nil
			}},
			{"in-branches", false, func(f *engine.Flow) error {
				return engine.Branches(f,
					engine.Branch("slow", func(f *engine.Flow) error { _, err := engine.Do(f, "slow", slow); return err }),
					engine.Branch("sleeps", func(f *engine.Flow) error { return engine.Sleep(f, "s", time.Hour) }),
				)
			}},
		} {
			id := startFlow(t, e, flow(test.name, test.do), 0)
			wants[id+": the function of workflow "+test.name] = test.blocked
		}
		time.Sleep(10 * time.Minute)
		texts := ""
		for _, w := range e.Warnings() {
			texts += w.What + ": " + w.Error + "\n"
			if age := time.Since(w.Since); age < 5*time.Minute || age > 10*time.Minute {
				t.Errorf("%s since %v", w.What, age)
			}
		}
		for what, want := range wants {
			if got := strings.Contains(texts, "run "+what+" is blocked: it has neither called an operation nor returned for "); got != want {
				t.Errorf("there is a warning of run %s: %v, want %v", what, got, want)
			}
		}
		if stats, err := e.Stats(t.Context()); err != nil || len(stats.Warnings) != 4 {
			t.Errorf("Stats has %d warnings, %v; want 4", len(stats.Warnings), err)
		}
		close(block)
		time.Sleep(5 * time.Minute)
		if left := e.Warnings(); len(left) > 0 {
			t.Errorf("warnings when all functions have returned: %+v", left)
		}
	})
}
