package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// undoLog records the inputs of follow-up runs.
type undoLog struct {
	mu   sync.Mutex
	seen []GaveUp
}

func (u *undoLog) add(g GaveUp) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen = append(u.seen, g)
	return len(u.seen)
}

func (u *undoLog) list() []GaveUp {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.seen)
}

// largeWorkflow returns a workflow that dies after its first step, with an input and an output of
// this many bytes. undo is the step of its follow-up run.
func largeWorkflow(size int, undo func(context.Context, GaveUp) (string, error)) *Workflow {
	follow := must(NewWorkflow("undo", Step("undo", undo, Policy("fixed(1h) attempts=3"))))
	return must(NewWorkflow("large", OnGiveUp(follow),
		Step("reserve", func(context.Context, string) (string, error) { return strings.Repeat("r", size), nil }),
		Step("pay", func(context.Context, string) (string, error) { return "", retry.Permanent(errors.New("declined")) }, After("reserve"))))
}

// checkGaveUp checks that the input of the follow-up run is complete.
func checkGaveUp(t *testing.T, g GaveUp, size int) {
	t.Helper()
	var input, reserved string
	if err := errors.Join(json.Unmarshal(g.Input, &input), json.Unmarshal(g.Outputs["reserve"], &reserved)); err != nil {
		t.Fatalf("the follow-up run of %s: %v", g.Run, err)
	}
	if len(input) != size || len(reserved) != size || len(g.Outputs) != 1 || g.Step != "pay" || g.Error != "declined" || g.ByReference != nil {
		t.Errorf("the follow-up run has an input of %d bytes and %d outputs, one of %d bytes, step %q, error %q, by reference %v; want %d bytes",
			len(input), len(g.Outputs), len(reserved), g.Step, g.Error, g.ByReference, size)
	}
}

// The first attempt of the follow-up fails, so that the second is made after a restart.
func TestAFollowUpRunHasAllOfALargeRun(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 60 << 10, 240 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var store memlog.Store
				var log undoLog
				w := largeWorkflow(size, func(_ context.Context, g GaveUp) (string, error) {
					if log.add(g) == 1 {
						return "", errors.New("not now")
					}
					return "undone", nil
				})
				e := must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet(), snapshotAfter: 1000}))
				dead := waited(t, started(t, e, w, strings.Repeat("i", size)))
				synctest.Wait()
				if err := e.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				e = opened(t, Config{Log: store.Open(), Workflows: []*Workflow{w}})
				time.Sleep(2 * time.Hour)
				if dead.State != "dead" || len(log.list()) != 2 {
					t.Fatalf("the run is %s, and was undone in %d attempts", dead.State, len(log.list()))
				}
				for _, g := range log.list() {
					checkGaveUp(t, g, size)
				}
			})
		})
	}
}

func TestADeadRunIsKeptForItsFollowUpRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log undoLog
		w := largeWorkflow(200<<10, func(_ context.Context, g GaveUp) (string, error) {
			if log.add(g) == 1 {
				return "", Snooze(20*time.Hour, "closed at night")
			}
			return "undone", nil
		})
		other := must(NewWorkflow("other", Step("do", func(context.Context, string) (string, error) { return "", retry.Permanent(errors.New("no")) })))
		e := opened(t, Config{Workflows: []*Workflow{w, other}, DeadRetention: time.Hour, Retention: 24 * time.Hour, snapshotAfter: 1000})
		dead := waited(t, started(t, e, w, strings.Repeat("i", 200<<10)))
		forgotten := waited(t, started(t, e, other, ""))
		time.Sleep(10 * time.Hour)
		if _, err := e.Get(t.Context(), forgotten.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("a dead run that no follow-up run needs is kept longer than DeadRetention: %v", err)
		}
		if i, err := e.Get(t.Context(), dead.ID); err != nil || i.State != "dead" {
			t.Fatalf("the dead run was forgotten before its follow-up run was over: %v", err)
		}
		time.Sleep(13 * time.Hour)
		if len(log.list()) != 2 {
			t.Fatalf("the follow-up run made %d attempts, want 2", len(log.list()))
		}
		checkGaveUp(t, log.list()[1], 200<<10)
		if _, err := e.Get(t.Context(), dead.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("the dead run is kept for a follow-up run that is over: %v", err)
		}
		// A repetition of the follow-up run finds the dead run gone, and says so.
		var undo string
		for _, i := range must(e.List(t.Context(), Filter{Workflow: "undo"})).Runs {
			undo = i.ID
		}
		again := waited(t, must(e.Replay(t.Context(), undo, nil, "test")))
		if again.State != "dead" || !strings.Contains(again.Error, dead.ID) || !strings.Contains(again.Error, "is not kept any more") || len(log.list()) != 2 {
			t.Errorf("without the dead run: %s, %q, %d attempts with an input; want an error that names run %s", again.State, again.Error, len(log.list()), dead.ID)
		}
	})
}

func TestClusterFollowUpRunHasAllOfALargeRun(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var log undoLog
		w := largeWorkflow(200<<10, func(_ context.Context, g GaveUp) (string, error) {
			if log.add(g) <= 4 {
				return "", errors.New("not now")
			}
			return "undone", nil
		})
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		for range 4 {
			waited(t, started(t, a.Engine, w, strings.Repeat("i", 200<<10)))
		}
		time.Sleep(time.Minute)
		a.kill()
		time.Sleep(3 * time.Hour)
		if len(log.list()) < 8 {
			t.Fatalf("%d attempts to undo 4 runs, each of which fails once; want at least 8", len(log.list()))
		}
		for _, g := range log.list() {
			checkGaveUp(t, g, 200<<10)
		}
	})
}

func TestARerunThatIsTooLargeSaysWhatToDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parts := []Part{}
		last := ""
		for i := range 5 {
			name := fmt.Sprint("s", i)
			opts := []StepOption{}
			if last != "" {
				opts = append(opts, After(last))
			}
			parts = append(parts, Step(name, func(context.Context, string) (string, error) { return strings.Repeat("x", 230<<10), nil }, opts...))
			last = name
		}
		w := must(NewWorkflow("large", parts...))
		e := opened(t, Config{})
		run := waited(t, started(t, e, w, ""))
		_, err := e.Rerun(t.Context(), RerunRequest{Run: run.ID, Step: "s4", By: "test"})
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(fmt.Sprint(err), "rerun an earlier step") {
			t.Errorf("Rerun() = %v; want ErrTooLarge, and what to do", err)
		}
		if i := waited(t, must(e.Rerun(t.Context(), RerunRequest{Run: run.ID, Step: "s3", By: "test"}))); i.State != "succeeded" {
			t.Errorf("a rerun from an earlier step: %s", i.State)
		}
	})
}

func TestALongHistorySaysWhichAttemptsAreNotShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := must(NewWorkflow("long",
			Step("short", func(context.Context, string) (string, error) { return "", nil }),
			Step("long", func(ctx context.Context, _ string) (string, error) {
				return "", errors.New(strings.Repeat("e", 2000))
			}, Policy("fixed(1s) attempts=200"), After("short"))))
		i := waited(t, started(t, opened(t, Config{}), w, ""))
		long := i.Steps[1]
		gaps, omitted := 0, 0
		for k, a := range long.Attempts {
			if a.Omitted > 0 {
				gaps++
			}
			if a.Outcome != "failed" {
				t.Errorf("attempt %d: %s; want only attempts whose end is known", a.Number, a.Outcome)
			}
			if omitted += a.Omitted; a.Number != k+1+omitted {
				t.Fatalf("attempt %d is at place %d, after %d that are not shown", a.Number, k, omitted)
			}
		}
		if gaps != 1 || omitted == 0 || long.Omitted != omitted || omitted+len(long.Attempts) != 200 || i.Omitted < omitted {
			t.Errorf("%d attempts are shown, %d are not, in %d places; step: %d, run: %d entries; want 200 in all, one place",
				len(long.Attempts), omitted, gaps, long.Omitted, i.Omitted)
		}
		if i.Steps[0].Omitted != 0 || len(i.Steps[0].Attempts) != 1 {
			t.Errorf("the other step has %d attempts that are not shown, and %d that are", i.Steps[0].Omitted, len(i.Steps[0].Attempts))
		}
	})
}

func TestAStepOfARunThatIsOverDoesNotWait(t *testing.T) {
	t.Parallel()
	fail := func(context.Context, string) (string, error) { return "", errors.New("not yet") }
	for _, c := range []struct {
		name   string
		parts  []Part
		cancel bool
		want   string
	}{
		{"another step failed", []Part{Step("other", fail, Policy("fixed(1m) attempts=2"))}, false, "canceled"},
		{"the run's time is over", []Part{Timeout(time.Minute)}, false, "failed"},
		{"someone canceled the run", nil, true, "canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := must(NewWorkflow("w", append(c.parts, Step("waits", fail, Policy("fixed(2h) attempts=3")))...))
				e := opened(t, Config{})
				s := started(t, e, w, "")
				synctest.Wait()
				if c.cancel {
					if err := e.Cancel(t.Context(), s.ID, "test"); err != nil {
						t.Fatal(err)
					}
				}
				i := waited(t, s)
				step := i.Steps[len(i.Steps)-1]
				if step.Status != c.want || step.Next != nil {
					t.Errorf("the step is %s, next %v; the run is %s; want %s", step.Status, step.Next, i.State, c.want)
				}
			})
		})
	}
}

// A flow as the follow-up run gets the large input and outputs too.
func TestAFlowAsFollowUpRunHasAllOfALargeRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 200 << 10
		var log undoLog
		follow := MustFlow("undo", func(f *Flow, g GaveUp) (string, error) {
			log.add(g)
			return "undone", Sleep(f, "long", time.Hour)
		})
		w := must(NewWorkflow("large", OnGiveUp(follow),
			Step("reserve", func(context.Context, string) (string, error) { return strings.Repeat("r", size), nil }),
			Step("pay", func(context.Context, string) (string, error) { return "", retry.Permanent(errors.New("declined")) }, After("reserve"))))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		waited(t, started(t, e, w, strings.Repeat("i", size)))
		time.Sleep(2 * time.Hour)
		if len(log.list()) != 2 {
			t.Fatalf("the function of the follow-up run was called %d times, want 2", len(log.list()))
		}
		for _, g := range log.list() {
			checkGaveUp(t, g, size)
		}
	})
}

// If the results of a flow's operations are too large for the follow-up run, it gets the smaller
// ones, and the sizes of the others. If the names alone are too large, it gets as many results as
// there is room for.
func TestAFollowUpRunOfALargeFlowHasTheSmallOutputs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		items, size   int
		key           string
		input         int
		least         int // results in Outputs
		omitted, less int // operations in Operations: at least and at most
	}{
		"large results":                 {items: 4, size: 100 << 10, key: "k", input: 10, least: 2, omitted: 4, less: 4},
		"large results and large input": {items: 4, size: 60 << 10, key: "k", input: 200 << 10, least: 3, omitted: 3, less: 3},
		"many results":                  {items: 1000, size: 1000, key: "k", input: 10, least: 50, omitted: 800, less: 950},
		"long names":                    {items: 10_000, size: 10, key: strings.Repeat("k", 120), input: 10, least: 500, omitted: 0, less: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log undoLog
				follow := must(NewWorkflow("undo", Step("undo", func(_ context.Context, g GaveUp) (string, error) { log.add(g); return "", nil })))
				w := MustFlow("large", func(f *Flow, _ string) (string, error) {
					if _, err := Do(f, "small", func(context.Context) (string, error) { return "order 17", nil }); err != nil {
						return "", err
					}
					reserve := func(context.Context, int) (string, error) { return strings.Repeat("r", test.size), nil }
					if _, err := Map(f, "reserve", make([]int, test.items), reserve, ForKey(test.key), Parallel(100)); err != nil {
						return "", err
					}
					return "", errors.New("declined")
				}, OnGiveUp(follow))
				e := opened(t, Config{Workflows: []*Workflow{w}})
				input := strings.Repeat("i", test.input)
				run := waited(t, started(t, e, w, input))
				time.Sleep(time.Minute)
				got := log.list()
				if len(got) != 1 || got[0].Run != run.ID || string(got[0].Input) != `"`+input+`"` || got[0].Error != "declined" || got[0].Step != "function" {
					t.Fatalf("%d follow-up runs of %s: %.500s", len(got), run.ID, fmt.Sprintf("%+v", got))
				}
				g := got[0]
				omitted, maps := 0, 0
				for name, op := range g.Operations {
					switch {
					case op.Omitted == test.size+2 && op.Status == "succeeded" && g.Outputs[name] == nil:
						omitted++
					case op.Items == test.items:
						maps++
					default:
						t.Fatalf("operation %s: %+v", name, op)
					}
				}
				if string(g.Outputs["small"]) != `"order 17"` || len(g.Outputs) < test.least || omitted+maps < test.omitted || omitted+maps > test.less {
					t.Errorf("the follow-up run got %d outputs, small is %.20q, and %d without their outputs", len(g.Outputs), g.Outputs["small"], len(g.Operations))
				}
				if test.less > 1 && (maps != 1 || len(g.Outputs)+omitted != test.items+1) {
					t.Errorf("the follow-up run knows %d results and %d without their outputs", len(g.Outputs), len(g.Operations))
				}
			})
		})
	}
}
