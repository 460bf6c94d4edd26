package enginetest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// flaky returns a step that fails this many times.
func flaky(t *testing.T, policy string, failures int, fail error) *engine.Workflow {
	t.Helper()
	calls := 0
	w, err := engine.NewWorkflow("flaky", engine.Step("call", func(context.Context, string) (int, error) {
		if calls++; calls <= failures {
			return 0, fail
		}
		return calls, nil
	}, engine.Policy(policy)))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestAnHourOfBackoffTakesNoTime(t *testing.T) {
	t.Parallel()
	w := flaky(t, "exponential(10m..1h) attempts=6", 4, errors.New("no"))
	run := enginetest.Run(t, w, "input")
	if run.State != "succeeded" || run.Ended.Sub(run.Created) != 130*time.Minute {
		t.Errorf("%s after %v", run.State, run.Ended.Sub(run.Created))
	}
	want := []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour}
	if got := enginetest.Waits(run, "call"); !slices.Equal(got, want) {
		t.Errorf("Waits = %v, want %v", got, want)
	}
}

func TestTheSameEveryTime(t *testing.T) {
	t.Parallel()
	waits := func() []time.Duration {
		return enginetest.Waits(enginetest.Run(t, flaky(t, "exponential(1s..1h) jitter=full attempts=6", 9, errors.New("no")), ""), "call")
	}
	if a, b := waits(), waits(); !slices.Equal(a, b) || len(a) != 5 {
		t.Errorf("%v, then %v", a, b)
	}
}

// real clock: enginetest.Test runs the function in a bubble
func TestACrashLosesTheAttemptAndNothingElse(t *testing.T) {
	t.Parallel()
	calls := 0
	w, err := engine.NewWorkflow("w", engine.Step("do", func(ctx context.Context, _ int) (string, error) {
		if calls++; calls == 1 {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "done", nil
	}, engine.Policy("fixed(1s) attempts=1")))
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		t.Helper()
		s, err := e.Start(t.Context(), w, 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		e.Crash(w)
		run, err := e.Wait(t.Context(), s.ID)
		if err != nil || run.State != "succeeded" || run.Steps[0].Attempts[0].Outcome != "lost" {
			t.Errorf("%+v, %v", run, err)
		}
	}, w)
}

func TestAPermanentErrorIsNotRetried(t *testing.T) {
	t.Parallel()
	run := enginetest.Run(t, flaky(t, "workflow", 9, retry.Permanent(errors.New("never"))), "")
	if run.State != "dead" || run.Reason != "permanent" || run.Attempts != 1 {
		t.Errorf("%s, %s after %d attempts", run.State, run.Reason, run.Attempts)
	}
}
