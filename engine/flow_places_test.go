package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// gauge counts what happens at the same time.
type gauge struct{ now, most atomic.Int32 }

func (g *gauge) enter() { g.note(g.now.Add(1)) }
func (g *gauge) exit()  { g.now.Add(-1) }

// note notes how many there are now.
func (g *gauge) note(n int32) {
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
}

// Calls of functions take no place of Concurrency: with one place all runs go on, one operation
// at a time.
func TestFlowConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var functions, operations gauge
		w := MustFlow("places", func(f *Flow, n int) (int, error) {
			functions.enter()
			defer functions.exit()
			for i := range 3 {
				_, err := Do(f, "op", func(context.Context) (int, error) {
					operations.enter()
					defer operations.exit()
					time.Sleep(100 * time.Millisecond)
					return i, nil
				}, ForKey(fmt.Sprint(i)))
				if err != nil {
					return 0, err
				}
			}
			_, err := Map(f, "m", []int{1, 2, 3}, func(context.Context, int) (int, error) {
				operations.enter()
				defer operations.exit()
				time.Sleep(100 * time.Millisecond)
				return 1, nil
			})
			return n, err
		})
		e := opened(t, Config{Workflows: []*Workflow{w}, Concurrency: 1})
		var runs []Started
		for n := range 5 {
			runs = append(runs, started(t, e, w, n))
		}
		for n, s := range runs {
			if i := waited(t, s); string(i.Output) != fmt.Sprint(n) {
				t.Errorf("run %d is %s: %s", n, i.State, i.Error)
			}
		}
		if functions.most.Load() != 5 || operations.most.Load() != 1 {
			t.Errorf("%d functions and %d operations at the same time, want 5 and 1", functions.most.Load(), operations.most.Load())
		}
	})
}

// Functions are called while no place is free and operations wait for one.
func TestFlowFunctionsNeedNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		busy := MustFlow("busy", func(f *Flow, name string) (int, error) {
			return Do(f, name, func(context.Context) (int, error) { time.Sleep(time.Hour); return 1, nil })
		})
		quick := MustFlow("quick", func(f *Flow, n int) (int, error) {
			_, err := Now(f, "now")
			return n, err
		})
		e := opened(t, Config{Workflows: []*Workflow{busy, quick}, Concurrency: 1})
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			started(t, e, busy, name)
		}
		synctest.Wait()
		for n := range 20 {
			run := started(t, e, quick, n)
			if synctest.Wait(); must(e.Get(t.Context(), run.ID)).State != StateSucceeded {
				t.Fatalf("run %d is %s", n, must(e.Get(t.Context(), run.ID)).State)
			}
		}
		time.Sleep(6 * time.Hour)
	})
}

// More runs than calls of functions that are allowed at once: those that wait for long make room.
func TestFlowFunctionsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A function that is suspended makes room before its goroutine has ended. So the test counts places.
		var taken gauge
		var tries [12]atomic.Int32
		var e *Engine
		w := MustFlow("many", func(f *Flow, n int) (int, error) {
			taken.note(int32(2 - e.process.Admission.Counts().Calls))
			_, err := Do(f, "op", func(context.Context) (int, error) {
				if tries[n].Add(1) == 1 {
					return 0, errors.New("not yet")
				}
				return 1, nil
			}, Policy("fixed(1m) attempts=2"))
			if err != nil {
				return 0, err
			}
			if err := Sleep(f, "short", 500*time.Millisecond); err != nil {
				return 0, err
			}
			return n, Sleep(f, "long", time.Hour)
		})
		e = opened(t, Config{Workflows: []*Workflow{w}, maxFunctions: 2})
		begin := time.Now()
		var runs []Started
		for n := range tries {
			runs = append(runs, started(t, e, w, n))
		}
		for n, s := range runs {
			if i := waited(t, s); string(i.Output) != fmt.Sprint(n) {
				t.Errorf("run %d is %s: %s", n, i.State, i.Error)
			}
		}
		if n := taken.most.Load(); n != 2 {
			t.Errorf("%d functions at the same time, want 2", n)
		}
		if took := time.Since(begin); took > 2*time.Hour {
			t.Errorf("the runs took %v", took)
		}
		if free := e.process.Admission.Counts().Calls; free != 2 {
			t.Errorf("%d places of functions are free, want 2", free)
		}
	})
}

// A limit of runs counts a run from its first call to its end.
func TestFlowMaxRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := MustFlow("limited", func(f *Flow, n int) (int, error) { return n, Sleep(f, "long", time.Hour) }, MaxRuns(2))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		begin := time.Now()
		var runs []Started
		for n := range 6 {
			runs = append(runs, started(t, e, w, n))
		}
		for _, s := range runs {
			waited(t, s)
		}
		if took := time.Since(begin); took != 3*time.Hour {
			t.Errorf("six runs of an hour, two at a time, took %v", took)
		}
	})
}

// The results of runs that wait are read back from a snapshot.
func TestFlowSnapshots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := new(memlog.Store)
		w := MustFlow("waits", func(f *Flow, n int) (string, error) {
			a, err := Do(f, "a", func(context.Context) (string, error) { return strings.Repeat(fmt.Sprint(n), 100), nil })
			if err != nil {
				return "", err
			}
			_, err = Do(f, "fails", func(context.Context) (int, error) { return 0, Keep(Snooze(time.Hour, "later"), n) }, Policy("fixed(1s) attempts=1"), MaxLost(2))
			return a, err
		})
		ends := MustFlow("waits", func(f *Flow, n int) (string, error) {
			a, err := Do(f, "a", func(context.Context) (string, error) { return "", errors.New("it must not run again") })
			if err != nil {
				return "", err
			}
			p, err := Do(f, "fails", func(ctx context.Context) (string, error) {
				task, _ := TaskOf(ctx)
				return string(task.Progress), nil
			})
			return a + " " + p, err
		})
		open := func(w *Workflow) *Engine {
			e, err := Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet(), snapshotAfter: 500, uptime: noUptime})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		e := open(w)
		var runs []Started
		for n := range 30 {
			runs = append(runs, started(t, e, w, n))
			time.Sleep(2 * time.Minute)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e = open(ends)
		for n, s := range runs {
			i, err := e.Wait(t.Context(), s.ID)
			if want := fmt.Sprintf("%q", strings.Repeat(fmt.Sprint(n), 100)+" "+fmt.Sprint(n)); err != nil || string(i.Output) != want {
				t.Errorf("run %d is %v: %v", n, i, err)
			}
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// The clock is set while no process runs: a sleep keeps its length.
func TestFlowClockIsSet(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		wall time.Duration // what passes by the wall clock
		real time.Duration // what passes
		left time.Duration // of a sleep of an hour
	}{
		{"not at all", 10 * time.Minute, 10 * time.Minute, 50 * time.Minute},
		{"forward", 24 * time.Hour, 10 * time.Minute, 50 * time.Minute},
		{"backward", 10 * time.Minute, 40 * time.Minute, 20 * time.Minute},
		{"backward, and the sleep is over", 10 * time.Minute, 2 * time.Hour, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := MustFlow("sleep", func(f *Flow, n int) (int, error) { return n, Sleep(f, "hour", time.Hour) })
				dir, base := t.TempDir(), time.Now()
				var skew time.Duration // what has passed by the wall clock and not in fact
				open := func() *Engine {
					e, err := Open(t.Context(), Config{
						Dir: dir, Workflows: []*Workflow{w}, Logger: quiet(),
						uptime: func() (time.Duration, string) { return time.Since(base) + 100*time.Hour - skew, "boot" },
					})
					if err != nil {
						t.Fatal(err)
					}
					return e
				}
				e := open()
				id := started(t, e, w, 1).ID
				synctest.Wait()
				if err := e.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.wall)
				skew = test.wall - test.real
				e = open()
				begin := time.Now()
				i, err := e.Wait(t.Context(), id)
				if err != nil || i.State != "succeeded" {
					t.Fatalf("the run is %v: %v", i, err)
				}
				if took := time.Since(begin); took != test.left {
					t.Errorf("the sleep took %v more, want %v", took, test.left)
				}
				if err := e.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// The process dies while functions wait for operations that are queued: only the operation that ran
// is lost, and the functions are called again at once.
func TestFlowFunctionsThatWaitForQueuedOperationsAreNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var calls atomic.Int32
		work := func(context.Context, int) (int, error) {
			time.Sleep(time.Second)
			return 1, nil
		}
		w := MustFlow("queued", func(f *Flow, n int) (int, error) {
			calls.Add(1)
			if n%2 == 0 {
				_, err := Map(f, "items", []int{1, 2}, work)
				return n, err
			}
			return Do(f, "op", func(ctx context.Context) (int, error) { return work(ctx, n) })
		})
		open := func() *Engine {
			return must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet(), Concurrency: 1}))
		}
		e := open()
		const runs = 40
		var ids []string
		for n := range runs {
			ids = append(ids, started(t, e, w, n).ID)
		}
		synctest.Wait()
		_ = e.Close(gone())
		time.Sleep(time.Minute) // until the operation of the killed process has returned
		calls.Store(0)
		e = open()
		defer func() { _ = e.Close(t.Context()) }()
		synctest.Wait()
		if n := calls.Load(); n != runs {
			t.Errorf("%d functions were called again at once, want %d", n, runs)
		}
		lost := 0
		for _, id := range ids {
			i := must(e.Wait(t.Context(), id))
			if i.State != StateSucceeded {
				t.Errorf("%s: %s", i.State, i.Error)
			}
			for _, s := range i.Steps {
				for _, a := range s.Attempts {
					if a.Outcome == "lost" {
						lost++
					}
				}
			}
		}
		if lost != 1 {
			t.Errorf("%d attempts were lost, want that of the operation that ran", lost)
		}
	})
}

// A suspect function that has to run alone is called even if no call of a function is free: the
// function that has the place waits for an operation, which can't begin before the suspect.
func TestFlowSuspectIsCalledWithoutAFreePlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		calls := 0
		suspect := MustFlow("suspect", func(_ *Flow, n int) (int, error) {
			if calls++; calls == 1 {
				time.Sleep(time.Hour)
			}
			return n, nil
		}, Function(MaxLost(1)))
		holder := MustFlow("holder", func(f *Flow, n int) (int, error) {
			time.Sleep(10 * time.Second) // until the suspect is due
			return Do(f, "op", func(context.Context) (int, error) { return n, nil })
		})
		open := func() *Engine {
			return must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{suspect, holder}, Logger: quiet(), maxFunctions: 1}))
		}
		e := open()
		ids := []string{started(t, e, suspect, 1).ID}
		synctest.Wait()
		_ = e.Close(gone())
		e = open()
		defer func() { _ = e.Close(t.Context()) }()
		ids = append(ids, started(t, e, holder, 1).ID)
		time.Sleep(2 * time.Hour)
		for _, id := range ids {
			i := must(e.Get(t.Context(), id))
			if i.State != StateSucceeded {
				t.Errorf("a run of %s is %s", i.Workflow, i.State)
			}
		}
		wantFreePlaces(t, e)
	})
}

// The names of operations need no memory once their runs have ended: operations with the same
// options share a definition and a queue.
func TestFlowOperationsShareTheirDefinition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := MustFlow("names", func(f *Flow, n int) (int, error) {
			for i := range 100 {
				opts := []DoOption{ForKey(fmt.Sprint(i))}
				if i%2 == 0 {
					opts = append(opts, Policy("fixed(5s) attempts=2"))
				}
				if _, err := Do(f, fmt.Sprint("op-", n, "-", i), func(context.Context) (int, error) { return i, nil }, opts...); err != nil {
					return 0, err
				}
			}
			return n, nil
		})
		e := opened(t, Config{Workflows: []*Workflow{w}})
		for n := range 10 {
			if i := waited(t, started(t, e, w, n)); i.State != StateSucceeded {
				t.Fatalf("%s: %s", i.State, i.Error)
			}
		}
		n := inOwner(t, e.shard(), func(turn shard.Recorder) (n int) {
			for range turn.State().Definitions() {
				n++
			}
			return n
		})
		if n != 3 {
			t.Errorf("%d definitions, want that of the workflow and two of operations", n)
		}
	})
}
