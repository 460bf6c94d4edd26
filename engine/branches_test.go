package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// takes returns an operation that takes some time, and notes that it was executed.
func (d *deeds) takes(name string, long time.Duration) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		d.add("%s", name)
		select {
		// real clock: it runs in the bubble of enginetest
		case <-time.After(long):
			return name, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// wantSorted is want for operations side by side, which may begin in any order.
func (d *deeds) wantSorted(t *testing.T, want string) {
	t.Helper()
	d.mu.Lock()
	slices.Sort(d.list)
	d.mu.Unlock()
	d.want(t, want)
}

// quick executes an operation that is noted.
func (d *deeds) quick(f *engine.Flow, name string, opts ...engine.DoOption) error {
	_, err := engine.Do(f, name, d.takes(name, 0), opts...)
	return err
}

// fails is an operation that gives up at once.
func fails(context.Context) (string, error) {
	return "", retry.Permanent(engine.Coded("boom", errors.New("it does not work")))
}

func TestBranchesRunSideBySide(t *testing.T) {
	d, sum := new(deeds), 0
	w := engine.MustFlow("side", func(f *engine.Flow, _ int) (int, error) {
		sum = 0
		branch := func(name string, opts ...engine.BranchOption) engine.FlowBranch {
			return engine.Branch(name, func(f *engine.Flow) error {
				_, err := engine.Do(f, name, d.takes(name, time.Minute))
				sum++ // without a lock
				return err
			}, opts...)
		}
		err := engine.Branches(f, branch("last", engine.After("a", "c", "a")), branch("a"), branch("b"), branch("c", engine.After("a")))
		return sum, err
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		wantRun(t, run, engine.StateSucceeded, "4")
		d.wantSorted(t, "a, b, c, last")
		if took := run.Ended.Sub(run.Created); took != 3*time.Minute {
			t.Errorf("the run took %v", took)
		}
		wantRun(t, e.Run(engine.MustFlow("none", func(f *engine.Flow, _ int) (string, error) { return "ok", engine.Branches(f) }), 1), engine.StateSucceeded, "ok")
	}, w)
}

// TestBranchesSuspend has waits of all kinds in branches: the function is suspended, and called
// again when one of them is over.
func TestBranchesSuspend(t *testing.T) {
	var calls, deferred atomic.Int32
	child := engine.MustFlow("child", func(f *engine.Flow, _ int) (string, error) { return "born", engine.Sleep(f, "hours", 4*time.Hour) })
	w := engine.MustFlow("parent", func(f *engine.Flow, _ int) (string, error) {
		calls.Add(1)
		var got []string // without a lock
		wait := func(name string, do func(*engine.Flow) (string, error)) engine.FlowBranch {
			return engine.Branch(name, func(f *engine.Flow) error {
				defer deferred.Add(1)
				text, err := do(f)
				got = append(got, text)
				return err
			})
		}
		err := engine.Branches(f,
			wait("sleep", func(f *engine.Flow) (string, error) { return "slept", engine.Sleep(f, "hour", time.Hour) }),
			wait("await", func(f *engine.Flow) (string, error) { return engine.Await[string](f, "go") }),
			wait("ask", func(f *engine.Flow) (string, error) {
				a, err := engine.Ask(f, "may", engine.Question{Text: "May I?"})
				return a.Choice, err
			}),
			wait("child", func(f *engine.Flow) (string, error) { return engine.Child[string](f, "child", child, 1) }),
			wait("retry", func(f *engine.Flow) (string, error) {
				return engine.Do(f, "again", func(ctx context.Context) (string, error) {
					if task, _ := engine.TaskOf(ctx); task.Attempt == 1 {
						return "", errors.New("not yet")
					}
					return "done", nil
				}, engine.Policy("fixed(5h) attempts=2"))
			}),
		)
		slices.Sort(got)
		return strings.Join(got, " "), err
	})
	for _, crash := range []bool{false, true} {
		calls.Store(0)
		deferred.Store(0)
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, w, 1)
			waitsForEver, more := true, int32(0)
			next := func(wait time.Duration, want int32) {
				t.Helper()
				time.Sleep(wait)
				if crash {
					e.Crash()
				}
				time.Sleep(time.Minute)
				if crash && waitsForEver { // the next process may have code without that wait
					more++
				}
				if flowRun(t, e, id); calls.Load() != want+more || deferred.Load() != 5*calls.Load() {
					t.Errorf("%d calls, want %d; %d deferred calls", calls.Load(), want+more, deferred.Load())
				}
			}
			next(time.Minute, 1)
			next(time.Hour, 2)
			if err := e.Signal(t.Context(), id, "go", "gone"); err != nil {
				t.Fatal(err)
			}
			next(time.Hour, 3)
			if err := e.Answer(t.Context(), id, "may", engine.Answer{Choice: engine.Approve}); err != nil {
				t.Fatal(err)
			}
			next(time.Hour, 4)
			waitsForEver = false
			next(time.Hour, 5)
			wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "approve born done gone slept")
			if calls.Load() != 6+more || deferred.Load() != 5*calls.Load() {
				t.Errorf("%d calls, %d deferred calls", calls.Load(), deferred.Load())
			}
		}, w, child)
	}
}

// allPairs makes TestBranchFailsWhileOthersWait test each wait with each operation after it.
var allPairs = flag.Bool("branches.pairs", false, "each wait with each operation in TestBranchFailsWhileOthersWait")

// TestBranchFailsWhileOthersWait has a branch that fails at once. The other one, which comes before
// it, begins no operation any more, also when the function is called again.
func TestBranchFailsWhileOthersWait(t *testing.T) {
	child := engine.MustFlow("child", func(f *engine.Flow, _ int) (string, error) { return "born", engine.Sleep(f, "hour", time.Hour) })
	d := new(deeds)
	for name, wait := range map[string]func(*engine.Flow) error{
		"short sleep": func(f *engine.Flow) error { return engine.Sleep(f, "wait", 500*time.Millisecond) },
		"sleep":       func(f *engine.Flow) error { return engine.Sleep(f, "wait", time.Hour) },
		"await": func(f *engine.Flow) error {
			if _, err := engine.Await[string](f, "wait", engine.Within(time.Hour)); !errors.Is(err, engine.ErrNoEvent) {
				return err
			}
			return nil
		},
		"ask": func(f *engine.Flow) error {
			_, err := engine.Ask(f, "wait", engine.Question{Text: "May I?", Default: engine.Approve}, engine.Within(time.Hour))
			return err
		},
		"child": func(f *engine.Flow) error { _, err := engine.Child[string](f, "wait", child, 1); return err },
		"operation": func(f *engine.Flow) error {
			_, err := engine.Do(f, "wait", d.takes("wait", 20*time.Minute))
			return err
		},
		"nested": func(f *engine.Flow) error {
			return engine.Branches(f,
				engine.Branch("x", func(f *engine.Flow) error {
					if err := engine.Sleep(f, "wait-x", time.Hour); err != nil {
						return err
					}
					return d.quick(f, "never-x")
				}),
				engine.Branch("y", func(f *engine.Flow) error { return engine.Sleep(f, "wait", 2*time.Hour) }),
			)
		},
	} {
		for next, begin := range map[string]func(*engine.Flow) error{
			"operation": func(f *engine.Flow) error { return d.quick(f, "never") },
			"now":       func(f *engine.Flow) error { _, err := engine.Now(f, "never"); d.add("never"); return err },
			"map": func(f *engine.Flow) error {
				_, err := engine.Map(f, "never", []int{1, 2}, func(context.Context, int) (int, error) { d.add("never"); return 1, nil })
				return err
			},
			"undo": func(f *engine.Flow) error {
				_, err := engine.DoUndo(f, "never", d.takes("never", 0), func(context.Context, *string) error { d.add("undo never"); return nil })
				return err
			},
		} {
			if name != "sleep" && next != "operation" && !*allPairs {
				continue
			}
			t.Run(name+" and "+next, func(t *testing.T) {
				d.list = nil
				var deferred atomic.Int32
				w := engine.MustFlow("fails", func(f *engine.Flow, _ int) (string, error) {
					err := engine.Branches(f,
						engine.Branch("slow", func(f *engine.Flow) error {
							defer deferred.Add(1)
							if err := wait(f); err != nil {
								return err
							}
							return begin(f)
						}),
						engine.Branch("after", func(f *engine.Flow) error { return d.quick(f, "never-after") }, engine.After("slow")),
						engine.Branch("bad", func(f *engine.Flow) error { _, err := engine.Do(f, "bad", fails); return err }),
						engine.Branch("worse", func(f *engine.Flow) error { return d.quick(f, "never-worse") }, engine.After("bad")),
					)
					var failed *engine.OpError
					if !errors.As(err, &failed) || failed.Code != "boom" || err.Error() != "branch bad: operation bad: it does not work" {
						return "", fmt.Errorf("Branches: %w", err)
					}
					if err := d.quick(f, "handle"); err != nil {
						return "", err
					}
					if err := engine.Sleep(f, "week", 7*day); err != nil {
						return "", err
					}
					return "handled", d.quick(f, "end")
				})
				enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
					id := startFlow(t, e, w, 1)
					for range 4 {
						time.Sleep(time.Hour)
						e.Crash()
					}
					wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "handled")
					if got := d.String(); strings.Contains(got, "never") || !strings.HasSuffix(got, "handle, end") || deferred.Load() < 2 {
						t.Errorf("the operations did %s; %d deferred calls", got, deferred.Load())
					}
				}, w, child)
			})
		}
	}
}

// TestBranchFailsBesideAMap has a map that has begun two items when another branch fails.
func TestBranchFailsBesideAMap(t *testing.T) {
	for _, crash := range []bool{false, true} {
		d := new(deeds)
		w := engine.MustFlow("fails", func(f *engine.Flow, _ int) (string, error) {
			err := engine.Branches(f,
				engine.Branch("map", func(f *engine.Flow) error {
					items := []int{1, 2, 3, 4, 5}
					_, err := engine.Map(f, "items", items, func(ctx context.Context, i int) (string, error) {
						return d.takes(strconv.Itoa(i), 10*time.Second)(ctx)
					}, engine.Parallel(1))
					if err == nil {
						err = d.quick(f, "never")
					}
					return err
				}),
				engine.Branch("bad", func(f *engine.Flow) error {
					if err := engine.Sleep(f, "s", 15*time.Second); err != nil {
						return err
					}
					return errors.New("no more")
				}),
			)
			if err == nil || err.Error() != "branch bad: no more" {
				return "", fmt.Errorf("Branches: %w", err)
			}
			return "ok", engine.Sleep(f, "long", time.Hour)
		})
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, w, 1)
			want := "1, 2"
			if crash {
				time.Sleep(17 * time.Second)
				e.Crash()
				want = "1, 2, 2"
			}
			wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "ok")
			d.want(t, want)
		}, w)
	}
}

// TestBranchErrorOfTheFirst has two branches that fail. The error is that of the first in the list, and
// a retry executes the failed operations of both.
func TestBranchErrorOfTheFirst(t *testing.T) {
	var works atomic.Bool
	d := new(deeds)
	w := engine.MustFlow("two", func(f *engine.Flow, _ int) (string, error) {
		branch := func(name string, wait time.Duration) engine.FlowBranch {
			return engine.Branch(name, func(f *engine.Flow) error {
				_, err := engine.Do(f, name, func(ctx context.Context) (string, error) {
					if _, err := d.takes(name, wait)(ctx); err != nil || works.Load() {
						return name, err
					}
					return fails(ctx)
				})
				return err
			})
		}
		return "ok", engine.Branches(f, branch("a", time.Hour), branch("b", time.Minute), branch("c", 2*time.Hour))
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		wantRun(t, run, engine.StateDead, "branch a: operation a: it does not work")
		works.Store(true)
		if err := e.Retry(t.Context(), run.ID, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, run.ID), engine.StateSucceeded, "ok")
		d.wantSorted(t, "a, a, b, b, c, c")
	}, w)
}

func TestBranchesWithinBranches(t *testing.T) {
	d := new(deeds)
	var tree func(f *engine.Flow, path string, depth int) error
	tree = func(f *engine.Flow, path string, depth int) error {
		if depth == 0 {
			if err := engine.Sleep(f, "s"+path, time.Duration(1+len(path))*time.Hour); err != nil {
				return err
			}
			return d.quick(f, "leaf"+path)
		}
		var list []engine.FlowBranch
		for i := range 3 {
			name := "b" + strconv.Itoa(i)
			opts := []engine.BranchOption{engine.After()}
			if i == 2 {
				opts = append(opts, engine.After("b0"))
			}
			list = append(list, engine.Branch(name, func(f *engine.Flow) error { return tree(f, path+"-"+strconv.Itoa(i), depth-1) }, opts...))
		}
		if err := engine.Branches(f, list...); err != nil {
			return err
		}
		return d.quick(f, "join"+path)
	}
	w := engine.MustFlow("tree", func(f *engine.Flow, _ int) (string, error) { return "ok", tree(f, "", 3) })
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		for range 10 {
			time.Sleep(3 * time.Hour)
			e.Crash()
		}
		run := endOfFlow(t, e, id)
		wantRun(t, run, engine.StateSucceeded, "ok")
		checkOnce(t, run)
		if list := slices.Compact(slices.Sorted(slices.Values(d.list))); len(list) != 27+1+3+9 || d.list[len(d.list)-1] != "join" {
			t.Errorf("%d operations: %v", len(list), d.list)
		}
	}, w)
}

func TestAThousandBranches(t *testing.T) {
	var calls, executed atomic.Int32
	w := engine.MustFlow("many", func(f *engine.Flow, _ int) (int, error) {
		calls.Add(1)
		sum := 0
		var list []engine.FlowBranch
		for i := range 1000 {
			var opts []engine.BranchOption
			if i >= 500 {
				opts = append(opts, engine.After("b"+strconv.Itoa(i-500)))
			}
			list = append(list, engine.Branch("b"+strconv.Itoa(i), func(f *engine.Flow) error {
				key := engine.ForKey(strconv.Itoa(i))
				n, err := engine.Do(f, "n", func(context.Context) (int, error) { executed.Add(1); return i, nil }, key)
				if err != nil {
					return err
				}
				sum += n
				return engine.Sleep(f, "s", time.Hour, key)
			}, opts...))
		}
		err := engine.Branches(f, list...)
		return sum, err
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		time.Sleep(time.Minute)
		e.Crash()
		run := endOfFlow(t, e, id)
		wantRun(t, run, engine.StateSucceeded, strconv.Itoa(999*1000/2))
		if took := run.Ended.Sub(run.Created); took < 2*time.Hour || took > 2*time.Hour+time.Minute || executed.Load() != 1000 {
			t.Errorf("the run took %v; %d executions", took, executed.Load())
		}
		if n := calls.Load(); n > 50 {
			t.Errorf("the function was called %d times", n)
		}
	}, w)
}

func TestBranchesAreCanceled(t *testing.T) {
	for _, how := range []string{"cancel", "timeout", "pause and cancel", "crash and cancel"} {
		t.Run(how, func(t *testing.T) {
			var deferred, after atomic.Int32
			w := engine.MustFlow("waits", func(f *engine.Flow, _ int) (string, error) {
				defer deferred.Add(1)
				branch := func(name string, do func(*engine.Flow) error) engine.FlowBranch {
					return engine.Branch(name, func(f *engine.Flow) error {
						defer func() {
							if deferred.Add(1); !errors.Is(engine.Sleep(f, "deferred-"+name, time.Hour), engine.ErrFlowOver) {
								after.Add(1)
							}
						}()
						err := do(f)
						after.Add(1)
						return err
					})
				}
				return "", engine.Branches(f,
					branch("sleep", func(f *engine.Flow) error { return engine.Sleep(f, "week", 7*day) }),
					branch("await", func(f *engine.Flow) error { _, err := engine.Await[int](f, "go"); return err }),
					branch("do", func(f *engine.Flow) error { _, err := engine.Do(f, "long", new(deeds).takes("", 5*day)); return err }),
				)
			}, engine.Timeout(3*day))
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, w, 1)
				time.Sleep(time.Hour)
				calls, state := int32(1), engine.StateCanceled
				switch how {
				case "timeout":
					time.Sleep(3 * day)
					state = engine.StateDead
				case "pause and cancel":
					if err := e.Pause(t.Context(), id, "tester"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Hour)
				case "crash and cancel":
					e.Crash()
					time.Sleep(time.Hour)
					calls = 2
				}
				if how != "timeout" {
					if err := e.Cancel(t.Context(), id, "tester"); err != nil {
						t.Fatal(err)
					}
				}
				wantRun(t, endOfFlow(t, e, id), state, "")
				if synctest.Wait(); deferred.Load() != 4*calls || after.Load() != 0 {
					t.Errorf("%d deferred calls, want %d; %d calls after the end", deferred.Load(), 4*calls, after.Load())
				}
			}, w)
		})
	}
}

// TestBranchesUndoInOrder has branches that call operations in turn. The undos have the reverse of
// the order of the calls, however often the function was called in between.
func TestBranchesUndoInOrder(t *testing.T) {
	const want = "undo a2, undo m, undo m, undo b2, undo a1, undo b1, undo first"
	for _, end := range []string{"error", "cancel", "crash", "failed branch"} {
		for _, crashes := range []int{0, 4} {
			t.Run(fmt.Sprint(end, crashes), func(t *testing.T) {
				d, block := new(deeds), new(atomic.Bool)
				undoable := func(f *engine.Flow, name string) error {
					_, err := engine.DoUndo(f, name, func(context.Context) (string, error) { return name, nil }, func(ctx context.Context, _ *string) error {
						d.add("undo %s", name)
						if name == "b2" && block.Load() {
							<-ctx.Done()
							return context.Cause(ctx)
						}
						return nil
					})
					return err
				}
				w := engine.MustFlow("undo", func(f *engine.Flow, _ int) (string, error) {
					if err := undoable(f, "first"); err != nil {
						return "", err
					}
					err := engine.Branches(f,
						engine.Branch("a", func(f *engine.Flow) error {
							if err := engine.Sleep(f, "a1", 2*time.Second); err != nil {
								return err
							}
							if err := undoable(f, "a1"); err != nil {
								return err
							}
							if err := engine.Sleep(f, "a2", 10*time.Second); err != nil {
								return err
							}
							return undoable(f, "a2")
						}),
						engine.Branch("b", func(f *engine.Flow) error {
							if err := undoable(f, "b1"); err != nil {
								return err
							}
							if err := engine.Sleep(f, "b2", 5*time.Second); err != nil {
								return err
							}
							return undoable(f, "b2")
						}),
						engine.Branch("m", func(f *engine.Flow) error {
							if err := engine.Sleep(f, "m", 7*time.Second); err != nil {
								return err
							}
							_, err := engine.MapUndo(f, "m", []int{1, 2}, func(_ context.Context, i int) (int, error) { return i, nil },
								func(context.Context, int, *int) error { d.add("undo m"); return nil })
							return err
						}),
						engine.Branch("end", func(f *engine.Flow) error {
							err := engine.Sleep(f, "end", 20*time.Second)
							if err == nil && end == "failed branch" {
								err = errors.New("the end")
							}
							return err
						}),
					)
					if err != nil || end != "cancel" {
						return "", cmpErr(err, errors.New("the end"))
					}
					return "", engine.Sleep(f, "forever", 1000*day)
				})
				enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
					block.Store(end == "crash")
					id := startFlow(t, e, w, 1)
					for range crashes {
						time.Sleep(3 * time.Second)
						e.Crash()
					}
					time.Sleep(time.Minute)
					state := engine.StateDead
					switch end {
					case "cancel":
						if err := e.Cancel(t.Context(), id, "tester"); err != nil {
							t.Fatal(err)
						}
						state = engine.StateCanceled
					case "crash":
						synctest.Wait()
						block.Store(false)
						e.Crash()
					}
					run := endOfFlow(t, e, id)
					text := "the end"
					if end == "cancel" {
						text = ""
					}
					wantRun(t, run, state, text)
					if end == "crash" {
						d.want(t, strings.Replace(want, "undo b2", "undo b2, undo b2", 1))
					} else {
						d.want(t, want)
					}
				}, w)
			})
		}
	}
}

// cmpErr returns the first error that is not nil.
func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestBranchesUndoWhileTheyWait cancels a run whose branches wait for operations with an undo.
func TestBranchesUndoWhileTheyWait(t *testing.T) {
	for _, crash := range []bool{false, true} {
		d := new(deeds)
		undo := func(name string) func(context.Context, *string) error {
			return func(_ context.Context, v *string) error { d.add("undo %s %v", name, v != nil); return nil }
		}
		w := engine.MustFlow("undo", func(f *engine.Flow, _ int) (string, error) {
			return "", engine.Branches(f,
				engine.Branch("done", func(f *engine.Flow) error {
					if _, err := engine.DoUndo(f, "done", d.takes("done", time.Second), undo("done")); err != nil {
						return err
					}
					_ = engine.Sleep(f, "week", 7*day)
					return d.quick(f, "never")
				}),
				engine.Branch("runs", func(f *engine.Flow) error {
					_, err := engine.DoUndo(f, "runs", d.takes("runs", day), undo("runs"))
					return err
				}),
				engine.Branch("waits", func(f *engine.Flow) error {
					_, err := engine.DoUndo(f, "waits", func(context.Context) (string, error) { d.add("waits"); return "", errors.New("later") }, undo("waits"), engine.Policy("fixed(10h) attempts=9"))
					return err
				}),
			)
		})
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, w, 1)
			time.Sleep(time.Hour)
			if crash {
				e.Crash()
				time.Sleep(time.Hour)
			}
			flowRun(t, e, id)
			if d.wantSorted(t, "done, "+strings.Repeat("runs, ", map[bool]int{false: 1, true: 2}[crash])+"waits"); t.Failed() {
				return
			}
			d.list = nil
			if err := e.Cancel(t.Context(), id, "tester"); err != nil {
				t.Fatal(err)
			}
			wantRun(t, endOfFlow(t, e, id), engine.StateCanceled, "")
			d.want(t, "undo waits false, undo runs false, undo done true")
		}, w)
	}
}

func TestPanicInABranch(t *testing.T) {
	var panics, deferred atomic.Int32
	d := new(deeds)
	w := engine.MustFlow("panics", func(f *engine.Flow, how string) (string, error) {
		defer func() {
			deferred.Add(1)
			if how == "recovered" {
				_ = recover()
			}
		}()
		err := engine.Branches(f,
			engine.Branch("sleep", func(f *engine.Flow) error {
				defer deferred.Add(1)
				return engine.Sleep(f, "s", 30*time.Second)
			}),
			engine.Branch("do", func(f *engine.Flow) error {
				defer deferred.Add(1)
				_, err := engine.Do(f, "do", d.takes("do", 40*time.Second))
				return err
			}),
			engine.Branch("nest", func(f *engine.Flow) error {
				defer deferred.Add(1)
				return engine.Branches(f, engine.Branch("bad", func(f *engine.Flow) error {
					if err := do(f, "first"); err != nil {
						return err
					}
					if panics.Add(-1) >= 0 {
						if how == "goexit" {
							runtime.Goexit()
						}
						panic("boom")
					}
					return nil
				}))
			}),
		)
		return "ok", err
	}, engine.Function(engine.Policy("fixed(1s) attempts=3")))
	for how, text := range map[string]string{"panic": "panic: boom\n", "recovered": "panic: boom\n", "goexit": "branch bad ended its goroutine (runtime.Goexit)"} {
		t.Run(how, func(t *testing.T) {
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				panics.Store(2)
				deferred.Store(0)
				d.list = nil
				run := e.Run(w, how)
				wantRun(t, run, engine.StateSucceeded, "ok")
				d.want(t, "do")
				if deferred.Load() != 4*3 {
					t.Errorf("%d deferred calls", deferred.Load())
				}
				panics.Store(100)
				d.list = nil
				run = e.Run(w, how)
				wantRun(t, run, engine.StateDead, text)
				if how == "panic" && !strings.Contains(run.Error, "TestPanicInABranch") {
					t.Errorf("the error has no stack: %s", run.Error)
				}
				d.want(t, "do")
				panics.Store(0)
				if err := e.Retry(t.Context(), run.ID, "tester"); err != nil {
					t.Fatal(err)
				}
				wantRun(t, endOfFlow(t, e, run.ID), engine.StateSucceeded, "ok")
			}, w)
		})
	}
}

// TestPanicInABranchWhileTheRunUndoes cancels a run with a branch that panics then. The undo of
// another branch's operation begins when its attempt has ended.
func TestPanicInABranchWhileTheRunUndoes(t *testing.T) {
	for _, crash := range []string{"never", "before", "while"} {
		d := new(deeds)
		w := engine.MustFlow("undo", func(f *engine.Flow, _ int) (string, error) {
			return "", engine.Branches(f,
				engine.Branch("bad", func(f *engine.Flow) error {
					if err := engine.Sleep(f, "week", 7*day); err != nil {
						panic("boom")
					}
					return nil
				}),
				engine.Branch("slow", func(f *engine.Flow) error {
					_, err := engine.DoUndo(f, "slow", func(ctx context.Context) (int, error) {
						<-ctx.Done()
						// real clock: it runs in a bubble
						time.Sleep(time.Second)
						d.add("slow has ended")
						return 0, context.Cause(ctx)
					}, func(context.Context, *int) error { d.add("undo slow"); return nil })
					return err
				}),
			)
		})
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, w, 1)
			time.Sleep(time.Hour)
			want := "slow has ended, undo slow"
			if crash == "before" {
				e.Crash()
				time.Sleep(time.Hour)
				want = "slow has ended, " + want
			}
			if err := e.Cancel(t.Context(), id, "tester"); err != nil {
				t.Fatal(err)
			}
			if crash == "while" { // the branch that panics is called again before the other one
				synctest.Wait()
				e.Crash()
			}
			wantRun(t, endOfFlow(t, e, id), engine.StateCanceled, "")
			time.Sleep(time.Minute) // until the attempt of the killed process has ended
			if crash == "while" {
				want = "undo slow, slow has ended"
			}
			d.want(t, want)
		}, w)
	}
}

// TestBranchMistakes has wrong uses of branches. Each parks the run.
func TestBranchMistakes(t *testing.T) {
	ok := func(*engine.Flow) error { return nil }
	many := make([]engine.FlowBranch, 1001)
	for i := range many {
		many[i] = engine.Branch("b"+strconv.Itoa(i), ok)
	}
	kept := new(engine.Flow)
	for _, test := range []struct {
		name, want string
		is         error
		do         func(*engine.Flow) error
	}{
		{"the flow of the function", "operation a: called with the flow of another branch; a branch must use the flow that it gets", engine.ErrOtherBranch, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("x", func(*engine.Flow) error { return do(f, "a") }))
		}},
		{"branches of the flow of the function", "branches: called with the flow of another branch", engine.ErrOtherBranch, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("x", func(*engine.Flow) error { return engine.Branches(f, engine.Branch("y", ok)) }))
		}},
		{"the flow of another branch", "operation a: called with the flow of another branch", engine.ErrOtherBranch, func(f *engine.Flow) error {
			return engine.Branches(f,
				engine.Branch("x", func(f *engine.Flow) error { kept = f; return engine.Sleep(f, "s", time.Hour) }),
				engine.Branch("y", func(f *engine.Flow) error { return do(kept, "a") }))
		}},
		{"the flow of an inner branch's parent", "operation a: called with the flow of another branch", engine.ErrOtherBranch, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("x", func(f *engine.Flow) error {
				return engine.Branches(f, engine.Branch("y", func(*engine.Flow) error { return do(f, "a") }))
			}))
		}},
		{"a second goroutine", "operation a: called from a second goroutine", engine.ErrSecondGoroutine, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("x", func(f *engine.Flow) error {
				result := make(chan error)
				go func() { result <- do(f, "a") }()
				return <-result
			}))
		}},
		{"branches in a second goroutine", "branches: called from a second goroutine; use engine.Map or engine.Branches for operations side by side", engine.ErrSecondGoroutine, func(f *engine.Flow) error {
			result := make(chan error)
			go func() { result <- engine.Branches(f, engine.Branch("x", ok)) }()
			return <-result
		}},
		{"branches in an operation", "branches: called inside another operation", nil, func(f *engine.Flow) error {
			_, err := engine.Do(f, "a", func(context.Context) (int, error) {
				return 0, retry.Permanent(engine.Branches(f, engine.Branch("x", ok)))
			})
			return err
		}},
		{"an operation of two branches", "operation a: called twice", engine.ErrSameOperation, func(f *engine.Flow) error {
			return engine.Branches(f,
				engine.Branch("x", func(f *engine.Flow) error { return do(f, "a") }),
				engine.Branch("y", func(f *engine.Flow) error { return do(f, "a") }))
		}},
		{"an ignored mistake beside long waits", "operation a: called twice", nil, func(f *engine.Flow) error {
			return engine.Branches(f,
				engine.Branch("x", func(f *engine.Flow) error { _, _ = do(f, "a"), do(f, "a"); return nil }),
				engine.Branch("y", func(f *engine.Flow) error { return engine.Sleep(f, "s", 100*day) }))
		}},
		{"an operation after a mistake, beside long waits", "operation a: called twice", nil, func(f *engine.Flow) error {
			return engine.Branches(f,
				engine.Branch("y", func(f *engine.Flow) error { return engine.Sleep(f, "s", 100*day) }),
				engine.Branch("x", func(f *engine.Flow) error { _, _ = do(f, "a"), do(f, "a"); return do(f, "b") }))
		}},
		{"the same name", "branches: branch x: another branch has this name", nil, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("x", ok), engine.Branch("x", ok))
		}},
		{"an unknown branch", `branches: branch x: after: there is no branch "z"`, nil, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("x", ok, engine.After("z")))
		}},
		{"a cycle", "branches: branch x: after: the branch waits for itself: x after y after z after x", nil, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("w", ok, engine.After("x")),
				engine.Branch("x", ok, engine.After("y")), engine.Branch("y", ok, engine.After("z")), engine.Branch("z", ok, engine.After("x")))
		}},
		{"itself", "branches: branch x: after: the branch waits for itself: x after x", nil, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("x", ok, engine.After("x")))
		}},
		{"too many", "branches: 1001 branches, at most 1000 are possible", nil, func(f *engine.Flow) error { return engine.Branches(f, many...) }},
		{"no function", "branches: branch x: no function", nil, func(f *engine.Flow) error { return engine.Branches(f, engine.Branch("x", nil)) }},
		{"no name", `branches: branch : name: "" must have`, nil, func(f *engine.Flow) error { return engine.Branches(f, engine.Branch("", ok)) }},
		{"again", "branch x: again: only the function itself can begin another run, and not a branch", nil, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("x", func(f *engine.Flow) error { return engine.Again(f, 1) }))
		}},
		{"again of the function", "branch x: again: only the function itself can begin another run, and not a branch", nil, func(f *engine.Flow) error {
			return engine.Branches(f, engine.Branch("x", func(*engine.Flow) error { return engine.Again(f, 1) }))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := engine.MustFlow("wrong", func(f *engine.Flow, _ int) (string, error) {
				err := test.do(f)
				if err != nil && test.is != nil && !errors.Is(err, test.is) {
					t.Errorf("got the error %v", err)
				}
				return "ok", err
			})
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, w, 1)
				time.Sleep(time.Minute)
				run := flowRun(t, e, id)
				if run.State != engine.StateNeedsHandler || !strings.HasPrefix(run.Error, test.want) {
					t.Fatalf("the run is %s: %q, want the error %q", run.State, run.Error, test.want)
				}
				if err := e.Register(engine.MustFlow("wrong", func(f *engine.Flow, _ int) (string, error) {
					engine.Removed(f, "a", "s")
					return "repaired", nil
				})); err != nil {
					t.Fatal(err)
				}
				wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "repaired")
			}, w)
		})
	}
}

// TestMapBesideASleep has a map in one branch and a sleep in another one. The function is suspended when
// only the sleep is left.
func TestMapBesideASleep(t *testing.T) {
	var calls atomic.Int32
	d := new(deeds)
	w := engine.MustFlow("map", func(f *engine.Flow, _ int) (string, error) {
		calls.Add(1)
		return "ok", engine.Branches(f,
			engine.Branch("sleep", func(f *engine.Flow) error { return engine.Sleep(f, "day", day) }),
			engine.Branch("map", func(f *engine.Flow) error {
				_, err := engine.Map(f, "m", []string{"1", "2", "3", "4"}, func(ctx context.Context, s string) (string, error) {
					return d.takes(s, time.Hour)(ctx)
				}, engine.Parallel(2))
				if err != nil {
					return err
				}
				if _, err := engine.Random(f, "r"); err != nil {
					return err
				}
				return d.quick(f, "after")
			}),
		)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		wantRun(t, run, engine.StateSucceeded, "ok")
		d.wantSorted(t, "1, 2, 3, 4, after")
		if took := run.Ended.Sub(run.Created); took != day || calls.Load() != 2 {
			t.Errorf("the run took %v and %d calls", took, calls.Load())
		}
	}, w)
}

// TestBranchesNeedPlaces has more operations side by side than the engine has places.
func TestBranchesNeedPlaces(t *testing.T) {
	var now, most atomic.Int32
	w := engine.MustFlow("places", func(f *engine.Flow, _ int) (string, error) {
		var list []engine.FlowBranch
		for i := range 20 {
			list = append(list, engine.Branch("b"+strconv.Itoa(i), func(f *engine.Flow) error {
				for k := range 3 {
					_, err := engine.Do(f, "op", func(context.Context) (int, error) {
						noteMost(&most, now.Add(1))
						// real clock: it runs in a bubble
						time.Sleep(time.Second)
						return int(now.Add(-1)), nil
					}, engine.ForKey(fmt.Sprint(i, "-", k)))
					if err != nil {
						return err
					}
				}
				return nil
			}))
		}
		return "ok", engine.Branches(f, list...)
	})
	synctest.Test(t, func(t *testing.T) {
		e, err := engine.Open(t.Context(), engine.Config{Log: new(memlog.Store).Open(), Workflows: []*engine.Workflow{w}, Concurrency: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close(context.Background()) }()
		begin := time.Now()
		s, err := e.Start(t.Context(), w, 1)
		if err != nil {
			t.Fatal(err)
		}
		run, err := e.Wait(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if wantRun(t, run, engine.StateSucceeded, "ok"); most.Load() != 2 || time.Since(begin) != 30*time.Second {
			t.Errorf("%d operations at once in %v", most.Load(), time.Since(begin))
		}
	})
}

// TestBranchesLeaveNoGoroutine compares the number of goroutines before and after runs that end in
// every way.
func TestBranchesLeaveNoGoroutine(t *testing.T) {
	w := engine.MustFlow("ends", func(f *engine.Flow, how string) (string, error) {
		branch := func(name string) engine.FlowBranch {
			return engine.Branch(name, func(f *engine.Flow) error {
				if err := engine.Sleep(f, "short-"+name, 10*time.Millisecond); err != nil {
					return err
				}
				if name == "b" {
					switch how {
					case "error":
						return errors.New("boom")
					case "panic":
						panic("boom")
					case "mistake":
						_, _, _ = do(f, "x"), do(f, "x"), do(f, "y")
					}
				}
				return engine.Sleep(f, "long-"+name, day)
			})
		}
		return "", engine.Branches(f, branch("a"), branch("b"), branch("c"))
	}, engine.Function(engine.Policy("fixed(1s) attempts=1")))
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		time.Sleep(time.Minute)
		synctest.Wait()
		before := countGoroutines()
		for _, how := range []string{"success", "error", "panic", "mistake", "cancel"} {
			id := startFlow(t, e, w, how)
			time.Sleep(time.Minute)
			if how == "cancel" {
				if err := e.Cancel(t.Context(), id, "tester"); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if n := countGoroutines(); n > before {
				t.Errorf("%s: %d goroutines, %d before", how, n, before)
			}
		}
		time.Sleep(2 * day)
		synctest.Wait()
		if n := countGoroutines(); n > before {
			t.Errorf("%d goroutines, %d before", n, before)
		}
	}, w)
}

// countGoroutines returns how many goroutines execute code of the engine. Those of the runtime and of other
// packages come and go.
func countGoroutines() (n int) {
	stacks := make([]byte, 16<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "\ngithub.com/tideover/tideover/engine/internal/") {
			n++
		}
	}
	return n
}

// TestBranchesOfOtherCode deploys code whose branches have other names of operations, and another
// order.
func TestBranchesOfOtherCode(t *testing.T) {
	before := engine.MustFlow("deploy", func(f *engine.Flow, _ int) (string, error) {
		return "old", engine.Branches(f,
			engine.Branch("a", func(f *engine.Flow) error {
				if err := do(f, "a"); err != nil {
					return err
				}
				return engine.Sleep(f, "wait", day)
			}),
			engine.Branch("b", func(f *engine.Flow) error { return cmpErr(do(f, "b"), do(f, "dropped")) }),
		)
	}, engine.Function(engine.Version("1")))
	executed := 0
	after := engine.MustFlow("deploy", func(f *engine.Flow, _ int) (string, error) {
		op := func(f *engine.Flow, name string) error {
			_, err := engine.Do(f, name, func(context.Context) (string, error) { executed++; return "", nil })
			return err
		}
		var version string
		err := engine.Branches(f,
			engine.Branch("new", func(f *engine.Flow) error { return op(f, "new") }, engine.After("b")),
			engine.Branch("b", func(f *engine.Flow) error {
				engine.SetStatus(f, "other code")
				engine.Removed(f, "dropped")
				version = f.Version() + f.Run()
				return op(f, "b")
			}),
			engine.Branch("a", func(f *engine.Flow) error {
				engine.Renamed(f, "a", "c")
				return cmpErr(op(f, "c"), engine.Sleep(f, "wait", day))
			}),
		)
		if version != "1"+f.Run() {
			return "", errors.New("version " + version)
		}
		return "new", err
	}, engine.Function(engine.Version("2")))
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		begin := time.Now()
		id := startFlow(t, e, before, 1)
		time.Sleep(time.Hour)
		e.Crash(after)
		run := endOfFlow(t, e, id)
		if wantRun(t, run, engine.StateSucceeded, "new"); executed != 1 || run.Status != "other code" || time.Since(begin) != day {
			t.Errorf("%d executions, status %q, %v", executed, run.Status, time.Since(begin))
		}
	}, before)
}
