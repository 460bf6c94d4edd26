package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

func TestOperationsHaveTheOptionsOfAll(t *testing.T) {
	t.Parallel()
	busy := func(context.Context) (string, error) { return "", errors.New("busy") }
	w := engine.MustFlow("defaults", func(f *engine.Flow, _ string) (string, error) {
		_, _ = engine.Do(f, "default", busy)
		_, _ = engine.Do(f, "own", busy, engine.Policy("fixed(1m) attempts=2"))
		return "", nil
	}, engine.Operations(engine.Policy("fixed(1h) attempts=4")))
	run := enginetest.Run(t, w, "")
	hours, minutes := enginetest.Waits(run, "default"), enginetest.Waits(run, "own")
	if !slices.Equal(hours, []time.Duration{time.Hour, time.Hour, time.Hour}) || !slices.Equal(minutes, []time.Duration{time.Minute}) {
		t.Errorf("waits %v and %v in a run that %s", hours, minutes, run.State)
	}
}

func TestOperationsRejectWrongOptions(t *testing.T) {
	t.Parallel()
	flow := func(*engine.Flow, string) (string, error) { return "", nil }
	const want = "operations: policy: policy"
	if _, err := engine.NewFlow("w", flow, engine.Operations(engine.Policy("sometimes"))); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	step := engine.Step("step", func(context.Context, string) (string, error) { return "", nil })
	if _, err := engine.NewWorkflow("w", step, engine.Operations()); err == nil || !strings.Contains(err.Error(), "only a workflow that NewFlow makes") {
		t.Errorf("operations of a workflow of steps: %v", err)
	}
}

func TestWaitFollowsAgain(t *testing.T) {
	t.Parallel()
	w := engine.MustFlow("rounds", func(f *engine.Flow, round int) (int, error) {
		if err := engine.Sleep(f, "hour", time.Hour); err != nil || round == 5 {
			return round, err
		}
		return 0, engine.Again(f, round+1)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		first, err := e.Start(t.Context(), w, 1, engine.Key("rounds"))
		if err != nil {
			t.Fatal(err)
		}
		last, err := first.Wait(t.Context())
		if err != nil || string(last.Output) != "5" || last.Key != "rounds" || last.ID == first.ID {
			t.Errorf("the last run is %+v, %v", last, err)
		}
		begin, err := e.Get(t.Context(), first.ID)
		if err != nil || begin.State != engine.StateSucceeded || begin.ContinuedBy == "" {
			t.Fatalf("the first run is %+v, %v", begin, err)
		}
		calls := begin.Steps[0].Attempts
		if end := calls[len(calls)-1]; end.Outcome != "continued" || end.Ended == nil {
			t.Errorf("the last call of its function: %+v", end)
		}
	}, w)
}
