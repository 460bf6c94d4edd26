package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// deployedFlow returns a version of a flow: version 1 calls a, b and c, each after a wait. Version 2
// calls a, new, which a run that has passed it executes too, and b by another name. It does not call
// c; version 3 also says so.
func deployedFlow(version int, executed *[6]atomic.Int32) *engine.Workflow {
	step := func(f *engine.Flow, name string, count int) error {
		if _, err := engine.Do(f, name, func(context.Context) (int, error) { executed[count].Add(1); return count, nil }); err != nil {
			return err
		}
		return engine.Sleep(f, "after-"+name, time.Hour)
	}
	return engine.MustFlow("deployed", func(f *engine.Flow, in int) (int, error) {
		names := []string{"a", "b", "c"}
		if version > 1 {
			names = []string{"a", "new", "better"}
			engine.Added(f, "new", "after-new")
			engine.Renamed(f, "b", "better")
			engine.Renamed(f, "after-b", "after-better")
		}
		if version > 2 {
			engine.Removed(f, "c", "after-c")
		}
		for i, name := range names {
			if err := step(f, name, i); err != nil {
				return 0, err
			}
		}
		return version, nil
	})
}

func TestADeployOverFlowsInEachPlace(t *testing.T) {
	const runs = 200
	var executed [3][6]atomic.Int32
	versions := []*engine.Workflow{deployedFlow(1, &executed[0]), deployedFlow(2, &executed[1]), deployedFlow(3, &executed[2])}
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		ids := make([]string, runs)
		for i := range ids {
			s, err := e.Start(t.Context(), versions[0], i)
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = s.ID
			time.Sleep(55 * time.Second) // so that they are in different places when the deploy comes
		}
		e.Crash(versions[1])
		time.Sleep(12 * time.Hour)
		outputs := map[string]int{}
		for _, id := range ids {
			run, err := e.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			switch run.State {
			case "succeeded":
				outputs[string(run.Output)]++
			case "needs-handler":
				outputs["parked"]++
				for _, want := range []string{`stored operation "c" that the function did not call`, "engine.Removed", "tideover cancel " + id} {
					if !strings.Contains(run.Error, want) {
						t.Fatalf("nothing about %q in %q", want, run.Error)
					}
				}
			default:
				t.Fatalf("run %s is %s: %s", id, run.State, run.Error)
			}
		}
		if outputs["2"] == 0 || outputs["parked"] == 0 || outputs["1"] == 0 {
			t.Errorf("outputs %v, want some of each", outputs)
		}
		e.Crash(versions[2])
		for _, id := range ids {
			run, err := e.Wait(t.Context(), id)
			if err != nil || run.State != "succeeded" {
				t.Fatalf("run %s: %v, %v", id, run, err)
			}
		}
		if n := executed[0][0].Load() + executed[1][0].Load() + executed[2][0].Load(); n != runs {
			t.Errorf("operation a was executed %d times, want %d", n, runs)
		}
		if n := executed[0][1].Load() + executed[1][2].Load() + executed[2][2].Load(); n != runs {
			t.Errorf("operation b, which is better now, was executed %d times, want %d", n, runs)
		}
	}, versions[0])
}

func TestADeadFlowContinuesWithTheCurrentDefinition(t *testing.T) {
	var before, after atomic.Int32
	flow := func(version string, fails bool) *engine.Workflow {
		return engine.MustFlow("dies", func(f *engine.Flow, _ int) (string, error) {
			if _, err := engine.Do(f, "first", func(context.Context) (int, error) { before.Add(1); return 1, nil }); err != nil {
				return "", err
			}
			_, err := engine.Do(f, "second", func(context.Context) (int, error) {
				after.Add(1)
				if fails {
					return 0, engine.Coded("broken", context.DeadlineExceeded)
				}
				return 2, nil
			}, engine.Policy("fixed(1s) attempts=1"))
			return f.Version(), err
		}, engine.Function(engine.Version(version)))
	}
	broken, mended := flow("1", true), flow("2", false)
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(broken, 0)
		if run.State != "dead" || run.Version != "1" {
			t.Fatalf("%s, version %q: %s", run.State, run.Version, run.Error)
		}
		e.Crash(mended)
		next, err := e.RetryLatest(t.Context(), run.ID, engine.Latest{}, "tester")
		if err != nil || next.ID != run.ID {
			t.Fatalf("%v, %v", next, err)
		}
		run, err = next.Wait(t.Context())
		if err != nil || string(run.Output) != `"2"` || before.Load() != 1 || after.Load() != 2 {
			t.Errorf("%s %s, %v; operations were executed %d and %d times", run.State, run.Output, err, before.Load(), after.Load())
		}
		if _, err := e.Rerun(t.Context(), engine.RerunRequest{Run: run.ID, Step: "second"}); err == nil || !strings.Contains(err.Error(), "is a function") {
			t.Errorf("rerun: %v", err)
		}
	}, broken)
}

func TestWaitFollowsAChainOfRuns(t *testing.T) {
	w := engine.MustFlow("counter", func(f *engine.Flow, n int) (int, error) {
		if err := engine.Sleep(f, "pause", time.Minute); err != nil {
			return 0, err
		}
		if n == 5 {
			return n, nil
		}
		return 0, engine.Again(f, n+1)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1, engine.Key("chain"))
		if string(run.Output) != "5" || run.Key != "chain" {
			t.Errorf("output %s, key %q", run.Output, run.Key)
		}
		s, err := e.Start(t.Context(), w, 1, engine.Key("chain"))
		if err != nil || !s.Existing || s.ID != run.ID {
			t.Errorf("the key belongs to %s (%v), %v; want the last run %s", s.ID, s.Existing, err, run.ID)
		}
	}, w)
}
