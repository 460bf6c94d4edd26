package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// A branch with a new operation parks the run, before the operation of another branch has its next
// attempt. The order of the branches makes no difference.
func TestANewOperationParksAllBranches(t *testing.T) {
	for _, order := range []string{"first", "last"} {
		t.Run(order, func(t *testing.T) {
			var x executions
			version := func(name string) *engine.Workflow {
				return engine.MustFlow("deploy", func(f *engine.Flow, _ int) (string, error) {
					branches := []engine.FlowBranch{
						engine.Branch("calls", func(f *engine.Flow) error {
							if _, err := counted(f, &x, name); err != nil {
								return err
							}
							return engine.Sleep(f, "long", day)
						}),
						engine.Branch("retries", func(f *engine.Flow) error {
							_, err := engine.Do(f, "flaky", func(context.Context) (int, error) {
								x.add("flaky")
								return 0, errors.New("no")
							}, engine.Policy("fixed(1h) attempts=3"))
							return err
						}),
					}
					if order == "last" {
						branches[0], branches[1] = branches[1], branches[0]
					}
					return "", engine.Branches(f, branches...)
				})
			}
			old, changed := version("price"), version("quote")
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, old, 1)
				time.Sleep(time.Minute)
				e.Crash(changed)
				time.Sleep(10 * day)
				wantRun(t, flowRun(t, e, id), engine.StateNeedsHandler, `"price" that the function did not call before the new operation "quote"`)
				if got, want := fmt.Sprint(x.n), "map[flaky:1 price:1]"; got != want {
					t.Errorf("%s were executed, want %s", got, want)
				}
				e.Crash(old)
				wantRun(t, endOfFlow(t, e, id), "dead", "no")
			}, old)
		})
	}
}

// A retry calls a failed operation again. What the function did because of the failure may not be
// needed any more. What it does after the retry is.
func TestOperationsAfterOneThatARetryTookBack(t *testing.T) {
	var x executions
	version := func(name string) *engine.Workflow {
		return engine.MustFlow("deploy", func(f *engine.Flow, _ int) (string, error) {
			if _, err := counted(f, &x, "first"); err != nil {
				return "", err
			}
			_, failure := engine.Do(f, "charge", func(context.Context) (int, error) {
				if x.add("charge"); x.n["charge"] == 1 {
					return 0, retry.Permanent(errors.New("declined"))
				}
				return 1, nil
			})
			if failure != nil {
				_, err := counted(f, &x, "release")
				return "", errors.Join(failure, err)
			}
			if _, err := counted(f, &x, name); err != nil {
				return "", err
			}
			return "ok", engine.Sleep(f, "wait", day)
		})
	}
	old, changed := version("ship"), version("send")
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, old, 1)
		wantRun(t, endOfFlow(t, e, id), "dead", "declined")
		mustDo(t, e.Retry(t.Context(), id, "me"))
		time.Sleep(time.Hour)
		e.Crash(changed)
		time.Sleep(day)
		wantRun(t, flowRun(t, e, id), engine.StateNeedsHandler, `"ship" that the function did not call before the new operation "send"`)
		e.Crash(old)
		wantRun(t, endOfFlow(t, e, id), "succeeded", "ok")
		if got, want := fmt.Sprint(x.n), "map[charge:2 first:1 release:1 ship:1]"; got != want {
			t.Errorf("%s were executed, want %s", got, want)
		}
	}, old)
}

// A function may fail before it calls an operation that the run has called, because that one comes
// later now. Removed lets the run end, and after a retry the function uses the result.
func TestAFailureBeforeAnOperationThatComesLaterNow(t *testing.T) {
	var x executions
	version := func(isNew bool, removed ...string) *engine.Workflow {
		return engine.MustFlow("deploy", func(f *engine.Flow, _ int) (string, error) {
			engine.Removed(f, removed...)
			branches := []engine.FlowBranch{
				engine.Branch("waits", func(f *engine.Flow) error { return engine.Sleep(f, "long", day) }),
				engine.Branch("fails", func(f *engine.Flow) error {
					_, err := engine.Do(f, "charge", func(context.Context) (int, error) {
						if x.add("charge"); x.n["charge"] == 1 {
							return 0, retry.Permanent(errors.New("declined"))
						}
						return 1, nil
					})
					return err
				}),
			}
			early := func(f *engine.Flow) error { _, err := counted(f, &x, "early"); return err }
			if !isNew {
				return "ok", engine.Branches(f, append([]engine.FlowBranch{engine.Branch("early", early)}, branches...)...)
			}
			if err := engine.Branches(f, branches...); err != nil {
				return "", err
			}
			return "ok", early(f)
		})
	}
	old := version(false)
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, old, 1)
		time.Sleep(time.Minute)
		e.Crash(version(true))
		time.Sleep(2 * day)
		wantRun(t, flowRun(t, e, id), engine.StateNeedsHandler, `"early" that the function did not call: deploy code that calls it, or that says engine.Renamed or engine.Removed`)
		e.Crash(version(true, "early"))
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "declined")
		mustDo(t, e.Retry(t.Context(), id, "me"))
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "ok")
		if got, want := fmt.Sprint(x.n), "map[charge:2 early:1]"; got != want {
			t.Errorf("%s were executed, want %s", got, want)
		}
	}, old)
}

// Operations of the engine.Branches that failed are not begun again when the function continues.
func TestAFunctionThatContinuesAfterFailedBranches(t *testing.T) {
	var x executions
	w := engine.MustFlow("continues", func(f *engine.Flow, _ int) (string, error) {
		err := engine.Branches(f,
			engine.Branch("fails", func(f *engine.Flow) error {
				_, err := engine.Do(f, "fail", func(context.Context) (int, error) { return 0, retry.Permanent(errors.New("no")) })
				return err
			}),
			engine.Branch("stops", func(f *engine.Flow) error {
				if err := engine.Sleep(f, "short", time.Minute); err != nil {
					return err
				}
				_, err := counted(f, &x, "never")
				return err
			}))
		if err == nil {
			return "", errors.New("no error")
		}
		if _, err := counted(f, &x, "cleanup"); err != nil {
			return "", err
		}
		return "cleaned", engine.Sleep(f, "wait", day)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		time.Sleep(time.Hour)
		e.Crash()
		wantRun(t, endOfFlow(t, e, id), "succeeded", "cleaned")
		if got, want := fmt.Sprint(x.n), "map[cleanup:1]"; got != want {
			t.Errorf("%s were executed, want %s", got, want)
		}
	}, w)
}

// A run that stands in an operation which the new code has removed continues, even if the operation
// would never end. That is so for each kind of operation, and however the code is deployed.
//
// real clock: enginetest.Test runs the deploys in a bubble
func TestARunContinuesWhereItsOperationIsRemoved(t *testing.T) {
	never := engine.MustFlow("never", func(f *engine.Flow, _ int) (int, error) {
		_, err := engine.Await[int](f, "never")
		return 0, err
	})
	waits := map[string]func(f *engine.Flow) error{
		"await": func(f *engine.Flow) error { _, err := engine.Await[int](f, "go"); return err },
		"await with a key": func(f *engine.Flow) error {
			_, err := engine.Await[int](f, "go", engine.ForKey("k"))
			return err
		},
		"ask":   func(f *engine.Flow) error { _, err := engine.Ask(f, "go", engine.Question{Text: "go?"}); return err },
		"sleep": func(f *engine.Flow) error { return engine.Sleep(f, "go", 1000*day) },
		"child": func(f *engine.Flow) error { _, err := engine.Child[int](f, "go", never, 1); return err },
		"children": func(f *engine.Flow) error {
			_, err := engine.Children[int, int](f, "go", never, []int{1, 2})
			return err
		},
		"do": func(f *engine.Flow) error {
			_, err := engine.Do(f, "go", func(context.Context) (int, error) { return 0, errors.New("no") }, engine.Policy("fixed(1000h) attempts=9"))
			return err
		},
		"branches": func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("a", func(f *engine.Flow) error { return engine.Sleep(f, "other", 1000*day) }),
				engine.Branch("b", func(f *engine.Flow) error { _, err := engine.Await[int](f, "go"); return err }))
		},
	}
	deploys := map[string]func(t *testing.T, e *enginetest.Engine, id string, w *engine.Workflow){
		"crash":    func(_ *testing.T, e *enginetest.Engine, _ string, w *engine.Workflow) { e.Crash(w, never) },
		"register": func(t *testing.T, e *enginetest.Engine, _ string, w *engine.Workflow) { mustDo(t, e.Register(w)) },
		"paused": func(t *testing.T, e *enginetest.Engine, id string, w *engine.Workflow) {
			mustDo(t, e.Pause(t.Context(), id, "me"))
			e.Crash(w, never)
			time.Sleep(day)
			mustDo(t, e.Resume(t.Context(), id, "me"))
		},
	}
	for kind, wait := range waits {
		for how, deploy := range deploys {
			t.Run(kind+", "+how, func(t *testing.T) {
				var x executions
				old := engine.MustFlow("stands", func(f *engine.Flow, n int) (string, error) {
					if n > 0 {
						if err := wait(f); err != nil {
							return "", err
						}
					}
					return "waited", engine.Sleep(f, "pause", 1000*day)
				})
				changed := engine.MustFlow("stands", func(f *engine.Flow, _ int) (string, error) {
					engine.Removed(f, "go", "go[k]", "other", "pause")
					return counted(f, &x, "after")
				})
				enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
					var ids []string
					for range 20 {
						ids = append(ids, startFlow(t, e, old, 1))
					}
					last := startFlow(t, e, old, 1)
					time.Sleep(time.Minute)
					deploy(t, e, last, changed)
					if kind == "sleep" || kind == "do" { // which end by themselves
						startFlow(t, e, changed, 0)
					}
					time.Sleep(time.Minute)
					for _, id := range append(ids, last) {
						wantRun(t, flowRun(t, e, id), "succeeded", "after")
					}
				}, old, never)
			})
		}
	}
}

// A run that stands in an await which the new code has renamed gets a signal of either name, also one
// that came before the deploy.
//
// real clock: enginetest.Test runs the deploys in a bubble
func TestARunGetsTheSignalOfItsRenamedAwait(t *testing.T) {
	version := func(name string, edit func(f *engine.Flow), opts ...engine.AwaitOption) *engine.Workflow {
		return engine.MustFlow("stands", func(f *engine.Flow, _ int) (string, error) {
			edit(f)
			got, err := engine.Await[string](f, name, opts...)
			if err != nil {
				return "", err
			}
			next, err := engine.Await[string](f, name, engine.ForKey("next"), engine.Within(time.Hour))
			if errors.Is(err, engine.ErrNoEvent) {
				err = nil
			}
			return got + next, err
		})
	}
	renamed := func(f *engine.Flow) { engine.Renamed(f, "go", "proceed") }
	codes := map[string][2]*engine.Workflow{
		"plain": {version("go", func(*engine.Flow) {}), version("proceed", renamed)},
		"with a limit": {
			version("go", func(*engine.Flow) {}, engine.Within(10*day)), version("proceed", renamed, engine.Within(10*day)),
		},
		"with a key": {version("go", func(*engine.Flow) {}, engine.ForKey("k")), version("proceed", func(f *engine.Flow) {
			engine.Renamed(f, "go[k]", "continue[k]")
			engine.Renamed(f, "continue[k]", "proceed[k]")
		}, engine.ForKey("k"))},
	}
	for kind, code := range codes {
		for _, signal := range []string{"go", "proceed", "proceed before"} {
			for _, how := range []string{"crash", "register"} {
				t.Run(kind+", "+signal+", "+how, func(t *testing.T) {
					enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
						var ids []string
						for n := range 20 {
							ids = append(ids, startFlow(t, e, code[0], n))
						}
						time.Sleep(time.Minute)
						send := func(name string) {
							for _, id := range ids {
								mustDo(t, e.Signal(t.Context(), id, name, "came"))
							}
						}
						if signal == "proceed before" {
							send("proceed")
						}
						if how == "crash" {
							e.Crash(code[1])
						} else {
							mustDo(t, e.Register(code[1]))
						}
						if kind == "with a limit" { // which ends by itself
							startFlow(t, e, code[1], 0)
						}
						if signal != "proceed before" {
							send(signal)
						}
						for _, id := range ids {
							wantRun(t, endOfFlow(t, e, id), "succeeded", `"came"`)
						}
					}, code[0])
				})
			}
		}
	}
}

// A run continues when it is paused and resumed, if the new code has removed the operation in which it
// stands, and says so only under a condition.
func TestAPauseShowsWhatIsRemovedUnderACondition(t *testing.T) {
	version := func(isNew bool) *engine.Workflow {
		return engine.MustFlow("stands", func(f *engine.Flow, n int) (string, error) {
			if isNew && n == 1 {
				engine.Removed(f, "go")
				return "continued", nil
			}
			return engine.Await[string](f, "go")
		})
	}
	old, changed := version(false), version(true)
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		var ids []string
		for _, n := range []int{0, 1, 0} {
			ids = append(ids, startFlow(t, e, old, n))
		}
		time.Sleep(time.Minute)
		e.Crash(changed)
		time.Sleep(day)
		wantRun(t, flowRun(t, e, ids[1]), "waiting", "")
		mustDo(t, e.Pause(t.Context(), ids[1], "me"))
		mustDo(t, e.Resume(t.Context(), ids[1], "me"))
		wantRun(t, endOfFlow(t, e, ids[1]), "succeeded", "continued")
	}, old)
}

// The troubles of the engine count the runs that wait for other code, by workflow and reason.
func TestTroublesCountParkedRuns(t *testing.T) {
	version := func(name string) *engine.Workflow {
		return engine.MustFlow("order", func(f *engine.Flow, n int) (string, error) {
			if n > 2 {
				_, _ = do(f, "same"), do(f, "same")
			}
			if err := do(f, name); err != nil {
				return "", err
			}
			return "ok", engine.Sleep(f, "wait", day)
		})
	}
	old, changed := version("price"), version("quote")
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		for n := range 5 {
			startFlow(t, e, old, n)
		}
		want := func(want string) {
			t.Helper()
			synctest.Wait()
			got := ""
			for _, trouble := range e.Troubles() {
				got += fmt.Sprintf("%s: %.41s; ", trouble.What, trouble.Error)
			}
			if got != want {
				t.Errorf("the troubles are %q, want %q", got, want)
			}
		}
		time.Sleep(time.Hour)
		want("has parked 2 runs of order: operation same: called twice; ")
		e.Crash(changed)
		time.Sleep(2 * day)
		want(`has parked 3 runs of order: the run has a stored operation "price" th; has parked 2 runs of order: operation same: called twice; `)
		e.Crash(old)
		time.Sleep(day)
		want("has parked 2 runs of order: operation same: called twice; ")
		list, err := e.List(t.Context(), engine.Filter{States: []string{engine.StateNeedsHandler}, Limit: 9, Fresh: true})
		mustDo(t, err)
		for _, run := range list.Runs {
			mustDo(t, e.Cancel(t.Context(), run.ID, "me"))
		}
		want("")
	}, old)
}
