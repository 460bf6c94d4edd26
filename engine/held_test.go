package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/info"
)

// A step that is due and does not begin says what it waits for, and since when.
func TestAStepThatIsDueSaysWhyItHasNotBegun(t *testing.T) {
	t.Parallel()
	steps := func(options ...StepOption) func(func(context.Context, int) (int, error)) *Workflow {
		return func(do func(context.Context, int) (int, error)) *Workflow {
			return must(NewWorkflow("w", Step("step", do, options...)))
		}
	}
	for name, test := range map[string]struct {
		workflow    func(func(context.Context, int) (int, error)) *Workflow
		concurrency int
		want        info.Held
		text        string
	}{
		"places":   {steps(), 1, info.Held{For: info.HeldByPlaces, Limit: 1}, "as many others run in the process as may run at once (1)"},
		"attempts": {steps(Concurrency(1)), 8, info.Held{For: info.HeldByAttempts, Limit: 1}, "as many attempts of the step run as may run at once (1)"},
		"runs": {func(do func(context.Context, int) (int, error)) *Workflow {
			return must(NewWorkflow("w", Step("step", do), MaxRuns(1)))
		}, 8, info.Held{For: info.HeldByRuns, Limit: 1}, "its workflow has as many runs in progress as it may have (1)"},
		"runs of a flow": {func(do func(context.Context, int) (int, error)) *Workflow {
			return MustFlow("w", func(f *Flow, n int) (int, error) {
				return Do(f, "op", func(ctx context.Context) (int, error) { return do(ctx, n) })
			}, MaxRuns(1))
		}, 8, info.Held{For: info.HeldByRuns, Limit: 1}, "its workflow has as many runs in progress as it may have (1)"},
		"operations of a flow": {func(do func(context.Context, int) (int, error)) *Workflow {
			return MustFlow("w", func(f *Flow, n int) (int, error) {
				return Do(f, "op", func(ctx context.Context) (int, error) { return do(ctx, n) })
			})
		}, 1, info.Held{For: info.HeldByPlaces, Limit: 1}, "as many others run in the process as may run at once (1)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := test.workflow(func(ctx context.Context, n int) (int, error) {
					select {
					case <-time.After(time.Minute):
					case <-ctx.Done():
					}
					return n, nil
				})
				e := opened(t, Config{Workflows: []*Workflow{w}, Concurrency: test.concurrency})
				first := started(t, e, w, 1)
				synctest.Wait()
				due := time.Now()
				second := started(t, e, w, 2)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if list := heldSteps(t, e, first.ID); len(list) > 0 {
					t.Errorf("the step that runs is held: %v", list[0])
				}
				list := heldSteps(t, e, second.ID)
				if len(list) != 1 {
					t.Fatalf("%d steps are held, want 1", len(list))
				}
				want := test.want
				if want.Since = due; list[0].For != want.For || list[0].Limit != want.Limit || !list[0].Since.Equal(due) || list[0].String() != test.text {
					t.Errorf("the step is held by %+v: %s; want %+v: %s", *list[0], list[0], want, test.text)
				}
				waited(t, first)
				waited(t, second)
				if list := heldSteps(t, e, second.ID); len(list) > 0 {
					t.Errorf("the step of the run that has ended is held: %v", list[0])
				}
			})
		})
	}
}

func TestAStepOfAPausedWorkflowSaysWhoHasPausedIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := must(NewWorkflow("w", Step("step", func(context.Context, int) (int, error) { return 0, nil })))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		if err := e.PauseWorkflow(t.Context(), "w", "ada"); err != nil {
			t.Fatal(err)
		}
		run := started(t, e, w, 1)
		synctest.Wait()
		if list := heldSteps(t, e, run.ID); len(list) != 1 || list[0].For != info.HeldByPause || list[0].String() != "its workflow is paused by ada" {
			t.Errorf("the step is held by %v, want the pause by ada", list)
		}
		if err := e.ResumeWorkflow(t.Context(), "w", "ada"); err != nil {
			t.Fatal(err)
		}
		waited(t, run)
	})
}

// heldSteps returns why steps of the run have not begun.
func heldSteps(t *testing.T, e *Engine, run string) (list []*Held) {
	t.Helper()
	for _, s := range must(e.Get(t.Context(), run)).Steps {
		if s.Held != nil {
			list = append(list, s.Held)
		}
	}
	return list
}
