package config

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// The limits that the file is checked against are those of the engine: it accepts the limit, and
// refuses one more.
func TestLimitsOfFormsAreThoseOfTheEngine(t *testing.T) {
	ask := func(f *engine.Flow, q engine.Question) error {
		_, err := engine.Ask(f, "ask", q)
		return err
	}
	choices := func(n int) (list []string) {
		for i := range n {
			list = append(list, strconv.Itoa(i))
		}
		return list
	}
	for name, c := range map[string]struct {
		most int
		do   func(f *engine.Flow, n int) error
	}{
		"parallel": {maxParallel, func(f *engine.Flow, n int) error {
			_, err := engine.Map(f, "map", []int{1}, func(context.Context, int) (int, error) { return 1, nil }, engine.Parallel(n))
			return err
		}},
		"question": {maxQuestion, func(f *engine.Flow, n int) error { return ask(f, engine.Question{Text: strings.Repeat("x", n)}) }},
		"choices":  {maxChoices, func(f *engine.Flow, n int) error { return ask(f, engine.Question{Text: "x", Choices: choices(n)}) }},
		"choice": {maxChoice, func(f *engine.Flow, n int) error {
			return ask(f, engine.Question{Text: "x", Choices: []string{"a", strings.Repeat("x", n)}})
		}},
		"items": {steps.MaxItems, func(f *engine.Flow, n int) error {
			_, err := engine.Map(f, "map", make([]int, n), func(ctx context.Context, _ int) (int, error) { // the first ones keep the others waiting
				<-ctx.Done()
				return 0, ctx.Err()
			})
			if err != nil {
				err = retry.Permanent(err)
			}
			return err
		}},
	} {
		w := engine.MustFlow("w", func(f *engine.Flow, n int) (int, error) { return n, c.do(f, n) })
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			for n, accepted := range map[int]bool{c.most: true, c.most + 1: false} {
				s, err := e.Start(t.Context(), w, n)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				run, err := e.Get(t.Context(), s.ID)
				if err != nil || (run.State != engine.StateNeedsHandler && run.State != engine.StateDead) != accepted {
					t.Errorf("%s of %d: %v: the run is %s: %s", name, n, err, run.State, run.Error)
				}
			}
		}, w)
	}
	for n, accepted := range map[int]bool{maxSteps: true, maxSteps + 1: false} {
		var ops, list []engine.Part
		for i := range n {
			name := "s" + strconv.Itoa(i)
			ops = append(ops, engine.Operation(name, "run"))
			list = append(list, engine.Step(name, func(_ context.Context, in int) (int, error) { return in, nil }))
		}
		_, errFlow := engine.NewFlow("w", func(_ *engine.Flow, n int) (int, error) { return n, nil }, ops...)
		_, errSteps := engine.NewWorkflow("w", list...)
		if (errFlow == nil) != accepted || (errSteps == nil) != accepted {
			t.Errorf("%d steps: %v; %v", n, errFlow, errSteps)
		}
	}
}

// Limits of the engine are problems of the file, with the place.
func TestLimitsOfFlows(t *testing.T) {
	t.Parallel()
	many := "version: 1\nworkflows:\n  w:\n    steps:\n"
	for i := range 1001 {
		many += fmt.Sprintf("      - {id: s%d, sleep: 1s}\n", i)
	}
	for text, want := range map[string]string{
		many: "x.yaml:1005:9: workflows.w.steps[1000]: this is step 1001 of the workflow, at most 1000",
	} {
		_, err := Load(Source{Path: "x.yaml", Data: []byte(text), Environ: []string{}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.300v, want %s", err, want)
		}
	}
}
