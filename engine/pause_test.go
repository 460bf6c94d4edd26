package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// check fails the test if there is an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sequence has the names of what happened, in order.
type sequence struct {
	mu   sync.Mutex
	list []string
}

func (s *sequence) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, name)
}

func (s *sequence) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.list, " ")
}

func (s *sequence) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := s.String(); got != want {
		t.Errorf("what happened: %s, want %s", got, want)
	}
}

// pauseOf returns the pause of a workflow.
func pauseOf(t *testing.T, e *Engine, name string) *PausedWorkflow {
	t.Helper()
	for _, w := range must(e.Stats(t.Context())).Workflows {
		if w.Name == name {
			return w.Paused
		}
	}
	return nil
}

func TestPauseOfAWorkflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var begun sequence
		busy := make(chan struct{})
		say := func(name string) Part {
			return Step(name, func(_ context.Context, n int) (int, error) { begun.add(fmt.Sprint(name, n)); return n, nil })
		}
		w := must(NewWorkflow("order",
			Step("a", func(_ context.Context, n int) (int, error) {
				begun.add(fmt.Sprint("a", n))
				if n == 0 {
					<-busy
				}
				if n == 1 && strings.Count(begun.String(), "a1") == 1 {
					return 0, errors.New("not yet")
				}
				return n, nil
			}, Policy("fixed(1m) attempts=3")),
			Step("b", func(_ context.Context, n int) (int, error) { begun.add(fmt.Sprint("b", n)); return n, nil }, After("a"))))
		other := must(NewWorkflow("other", say("o")))
		open := func() *Engine {
			return must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w, other}, Logger: quiet(), Concurrency: 2}))
		}
		e := open()
		runs := []Started{started(t, e, w, 0)}
		begun.want(t, "a0")
		runs = append(runs, started(t, e, w, 1))
		begun.want(t, "a0 a1")
		check(t, e.PauseWorkflow(t.Context(), "order", "ann"))
		check(t, e.PauseWorkflow(t.Context(), "order", "bob")) // changes nothing
		paused := time.Now()
		close(busy) // the attempt that is running ends, and the next step does not begin
		time.Sleep(time.Hour)
		for n := 2; n < 6; n++ { // also the wait of run 1 has ended
			runs = append(runs, started(t, e, w, n))
			time.Sleep(time.Second)
		}
		waited(t, started(t, e, other, 0))
		begun.want(t, "a0 a1 o0")
		if p := pauseOf(t, e, "order"); p == nil || p.By != "ann" || !p.At.Equal(paused) || p.Partly || pauseOf(t, e, "other") != nil {
			t.Errorf("Stats: %+v", p)
		}
		if s := must(e.Stats(t.Context())); s.Queued != 0 || s.Oldest != nil || s.Workflows[0].States["queued"] != 6 {
			t.Errorf("Stats() = %+v", s)
		}
		i := must(e.Get(t.Context(), runs[2].ID))
		if i.State != StateQueued || i.WorkflowPaused == nil || i.WorkflowPaused.By != "ann" {
			t.Errorf("a run that waits: %+v", i)
		}
		if p := must(e.PausedWorkflows(t.Context())); len(p) != 1 || p["order"].By != "ann" {
			t.Errorf("PausedWorkflows() = %v", p)
		}

		check(t, e.Cancel(t.Context(), runs[2].ID, "ann"))
		if i := must(e.Get(t.Context(), runs[2].ID)); i.State != StateCanceled || i.WorkflowPaused != nil {
			t.Errorf("a run that was canceled: %+v", i)
		}
		check(t, e.Close(t.Context())) // in the middle of the pause
		e = open()
		time.Sleep(time.Hour)
		begun.want(t, "a0 a1 o0")
		for _, i := range must(e.List(t.Context(), Filter{Workflow: "order", Fresh: true})).Runs {
			if (i.WorkflowPaused == nil) != (i.State == StateCanceled) {
				t.Errorf("in a list: %+v", i)
			}
		}
		check(t, e.ResumeWorkflow(t.Context(), "order", "ann"))
		check(t, e.ResumeWorkflow(t.Context(), "order", "bob")) // changes nothing
		for n, run := range runs {
			if i := must(e.Wait(t.Context(), run.ID)); n != 2 && i.State != StateSucceeded {
				t.Errorf("run %d is %s", n, i.State)
			}
		}
		if got := begun.String(); strings.Count(got, "b") != 5 || strings.Count(got, "a0") != 1 || strings.Count(got, "a1") != 2 {
			t.Errorf("the steps that began: %s", got)
		}
		if pauseOf(t, e, "order") != nil {
			t.Error("it is paused after ResumeWorkflow")
		}
		check(t, e.Close(t.Context()))
	})
}

// Queued runs begin in their order, and never more at once than the limit allows.
func TestAResumedWorkflowKeepsItsLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var begun sequence
		var now, most atomic.Int32
		w := must(NewWorkflow("order", Step("a", func(_ context.Context, n int) (int, error) {
			begun.add(fmt.Sprint(n))
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
			return n, nil
		})))
		open := func() *Engine {
			return must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet(), Concurrency: 3}))
		}
		e := open()
		check(t, e.PauseWorkflow(t.Context(), "order", "ann"))
		var want []string
		for n := range 30 {
			started(t, e, w, n)
			want = append(want, fmt.Sprint(n))
			time.Sleep(time.Millisecond)
		}
		_ = e.Close(gone()) // killed
		e = open()
		time.Sleep(time.Minute)
		begun.want(t, "")
		check(t, e.ResumeWorkflow(t.Context(), "order", "ann"))
		time.Sleep(time.Minute)
		if most.Load() != 3 {
			t.Errorf("%d attempts ran at once", most.Load())
		}
		// The three of a round begin together.
		for n, one := range strings.Fields(begun.String()) {
			var i int
			if _, err := fmt.Sscan(one, &i); err != nil || i/3 != n/3 {
				t.Errorf("run %s began as number %d of %s", one, n, begun.String())
			}
		}
		if n := len(strings.Fields(begun.String())); n != len(want) {
			t.Errorf("%d runs began", n)
		}
		check(t, e.Close(t.Context()))
	})
}

// An attempt that is lost while its workflow is paused is made again when that is resumed.
func TestAnAttemptThatIsLostInAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var begun sequence
		w := must(NewWorkflow("order", Step("a", func(ctx context.Context, n int) (int, error) {
			begun.add("a")
			if strings.Count(begun.String(), "a") == 1 {
				<-ctx.Done()
				time.Sleep(time.Hour)
			}
			return n, nil
		})))
		open := func() *Engine {
			return must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet()}))
		}
		e := open()
		run := started(t, e, w, 0)
		synctest.Wait()
		check(t, e.PauseWorkflow(t.Context(), "order", "ann"))
		_ = e.Close(gone())
		e = open()
		time.Sleep(time.Hour)
		begun.want(t, "a")
		check(t, e.ResumeWorkflow(t.Context(), "order", "ann"))
		if i := must(e.Wait(t.Context(), run.ID)); i.State != StateSucceeded || i.Attempts != 2 {
			t.Errorf("%+v", i)
		}
		check(t, e.Close(t.Context()))
		time.Sleep(2 * time.Hour) // until the handler of the first attempt has returned
	})
}

func TestATimeoutInAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := must(NewWorkflow("order", nothing(), Timeout(time.Minute)))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		check(t, e.PauseWorkflow(t.Context(), "order", "ann"))
		i := waited(t, started(t, e, w, 0))
		if want := "timed out after 1m0s while its workflow was paused"; i.State != StateDead || i.Error != want {
			t.Errorf("%s: %s", i.State, i.Error)
		}
		check(t, e.Retry(t.Context(), i.ID, "ann"))
		if i := must(e.Get(t.Context(), i.ID)); i.WorkflowPaused == nil || i.Finished() {
			t.Errorf("after a retry: %+v", i)
		}
		check(t, e.ResumeWorkflow(t.Context(), "order", "ann"))
		if i := must(e.Wait(t.Context(), i.ID)); i.State != StateSucceeded {
			t.Errorf("%+v", i)
		}
	})
}

func TestPauseOfAWorkflowThatIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		w := must(NewWorkflow("order", nothing()))
		e := must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet()}))
		started(t, e, w, 0)
		for _, do := range []func(context.Context, string, string) error{e.PauseWorkflow, e.ResumeWorkflow} {
			if err := do(t.Context(), "oder", "ann"); !errors.Is(err, ErrUnknownWorkflow) || !strings.Contains(err.Error(), `"oder"`) {
				t.Errorf("%v", err)
			}
		}
		check(t, e.Close(t.Context()))
		// It has runs, and is not registered any more.
		e = must(Open(t.Context(), Config{Log: store.Open(), Logger: quiet()}))
		check(t, e.PauseWorkflow(t.Context(), "order", "ann"))
		check(t, e.ResumeWorkflow(t.Context(), "order", "ann"))
		check(t, e.Close(t.Context()))
	})
}

func TestPauseOfAFlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var did sequence
		do := func(f *Flow, name string, takes time.Duration) error {
			_, err := Do(f, name, func(context.Context) (int, error) { did.add(name); time.Sleep(takes); return 0, nil })
			return err
		}
		w := MustFlow("code", func(f *Flow, kind string) (string, error) {
			if err := do(f, kind+"1", time.Minute); err != nil {
				return "", err
			}
			switch kind {
			case "signal":
				if _, err := Await[string](f, "go"); err != nil {
					return "", err
				}
			case "sleep":
				if err := Sleep(f, "nap", 10*time.Minute); err != nil {
					return "", err
				}
			}
			return kind, do(f, kind+"2", 0)
		})
		open := func() *Engine {
			return must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet()}))
		}
		e := open()
		runs := map[string]Started{}
		for _, kind := range []string{"do", "signal", "sleep"} {
			runs[kind] = started(t, e, w, kind)
			synctest.Wait()
		}
		did.want(t, "do1 signal1 sleep1")
		check(t, e.PauseWorkflow(t.Context(), "code", "ann"))
		runs["late"] = started(t, e, w, "late")
		time.Sleep(5 * time.Minute) // the operations that were running have ended
		check(t, e.Signal(t.Context(), runs["signal"].ID, "go", "now"))
		time.Sleep(time.Hour) // the sleep is over
		did.want(t, "do1 signal1 sleep1")
		if n := e.cfg.maxFunctions - e.process.Admission.Counts().Calls; n != 0 {
			t.Errorf("%d calls of functions occupy places while nothing can begin", n)
		}
		for kind, run := range runs {
			if i := must(e.Get(t.Context(), run.ID)); i.State != StateQueued || i.WorkflowPaused == nil {
				t.Errorf("%s is %s, paused %+v", kind, i.State, i.WorkflowPaused)
			}
		}
		_ = e.Close(gone()) // killed
		e = open()
		time.Sleep(time.Hour)
		did.want(t, "do1 signal1 sleep1")
		check(t, e.ResumeWorkflow(t.Context(), "code", "ann"))
		for kind, run := range runs {
			if i := must(e.Wait(t.Context(), run.ID)); i.State != StateSucceeded {
				t.Errorf("%s is %s: %s", kind, i.State, i.Error)
			}
		}
		if got := did.String(); len(strings.Fields(got)) != 8 {
			t.Errorf("the operations: %s", got)
		}
		check(t, e.Close(t.Context()))
	})
}

// A run that undoes its operations does so while its workflow is paused, also after a restart.
func TestUndoInAPause(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var store memlog.Store
				var did sequence
				w := MustFlow("code", func(f *Flow, n int) (string, error) {
					for _, name := range []string{"hotel", "car"} {
						if _, err := DoUndo(f, name, func(context.Context) (string, error) { did.add(name); return "", nil },
							func(context.Context, *string) error { did.add("-" + name); time.Sleep(time.Minute); return nil }); err != nil {
							return "", err
						}
					}
					if _, err := Await[string](f, "go"); err != nil {
						return "", err
					}
					did.add("end")
					return "", nil
				})
				open := func() *Engine {
					return must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet()}))
				}
				e := open()
				run, other := started(t, e, w, 0), started(t, e, w, 1)
				time.Sleep(time.Minute)
				if got := did.String(); len(strings.Fields(got)) != 4 {
					t.Errorf("before the pause: %s", got)
				}
				check(t, e.PauseWorkflow(t.Context(), "code", "ann"))
				check(t, e.Signal(t.Context(), other.ID, "go", ""))
				check(t, e.Cancel(t.Context(), run.ID, "ann"))
				time.Sleep(time.Second)
				if i := must(e.Get(t.Context(), run.ID)); i.State != StateUndoing || i.WorkflowPaused != nil {
					t.Errorf("%s, paused %+v", i.State, i.WorkflowPaused)
				}
				if restart {
					_ = e.Close(gone())
					e = open()
				}
				if i := must(e.Wait(t.Context(), run.ID)); i.State != StateCanceled {
					t.Errorf("%s: %s", i.State, i.Error)
				}
				if got := did.String(); !strings.HasSuffix(got, "-hotel") || strings.Contains(got, "end") {
					t.Errorf("the operations: %s", got)
				}
				check(t, e.ResumeWorkflow(t.Context(), "code", "ann"))
				if i := must(e.Wait(t.Context(), other.ID)); i.State != StateSucceeded {
					t.Errorf("%s: %s", i.State, i.Error)
				}
				check(t, e.Close(t.Context()))
			})
		})
	}
}

// A run that is undoing is not stopped by a pause, also if it waits for a handler.
func TestPauseDoesNotShowForAnUndoThatNeedsAHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		w := MustFlow("code", func(f *Flow, _ int) (string, error) {
			if _, err := DoUndo(f, "book", func(context.Context) (string, error) { return "", nil },
				func(context.Context, *string) error { time.Sleep(time.Minute); return nil }); err != nil {
				return "", err
			}
			return Await[string](f, "go")
		})
		e := must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet()}))
		run, stopped := started(t, e, w, 0), started(t, e, w, 1)
		synctest.Wait()
		check(t, e.PauseWorkflow(t.Context(), "code", "ann"))
		check(t, e.Cancel(t.Context(), run.ID, "ann"))
		synctest.Wait()
		_ = e.Close(gone()) // killed
		e = must(Open(t.Context(), Config{Log: store.Open(), Logger: quiet()}))
		time.Sleep(time.Hour)
		for _, i := range append(must(e.List(t.Context(), Filter{})).Runs, *must(e.Get(t.Context(), run.ID)), *must(e.Get(t.Context(), stopped.ID))) {
			switch {
			case i.ID == stopped.ID:
				if i.WorkflowPaused == nil {
					t.Errorf("the other run: %+v", i)
				}
			case i.State != StateNeedsHandler || i.WorkflowPaused != nil:
				t.Errorf("the run is %s, paused %+v", i.State, i.WorkflowPaused)
			}
		}
		check(t, e.Close(t.Context()))
	})
}

// A run that is undone by hand needs a place among MaxRuns. While it waits for one, it does not block
// the runs that have a place.
func TestUndoInAPauseKeepsMaxRuns(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"pause undo cancel", "undo pause cancel", "undo cancel pause"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var did sequence
				w := MustFlow("code", func(f *Flow, name string) (string, error) {
					_, err := DoUndo(f, "book", func(context.Context) (string, error) { did.add(name); return "", nil },
						func(context.Context, *string) error { time.Sleep(time.Second); did.add("-" + name); return nil })
					if err != nil {
						return "", err
					}
					if name == "a" {
						panic("a bug")
					}
					return Await[string](f, "go")
				}, MaxRuns(1))
				e := opened(t, Config{Workflows: []*Workflow{w}})
				dead, active := started(t, e, w, "a"), started(t, e, w, "b")
				if i := waited(t, dead); i.State != StateDead {
					t.Fatalf("%+v", i)
				}
				for _, step := range strings.Fields(order) {
					did.want(t, "a b")
					switch step {
					case "pause":
						check(t, e.PauseWorkflow(t.Context(), "code", "ann"))
					case "undo":
						check(t, e.Undo(t.Context(), dead.ID, "ann"))
						time.Sleep(time.Hour)
					case "cancel":
						check(t, e.Cancel(t.Context(), active.ID, "ann"))
					}
				}
				time.Sleep(time.Hour)
				did.want(t, "a b -b -a")
			})
		})
	}
}

func TestClusterPausesAWorkflow(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		var begun sequence
		w := must(NewWorkflow("wide", Step("a", func(_ context.Context, n int) (int, error) { begun.add(fmt.Sprint(n)); return n, nil })))
		cfg := Config{Workflows: []*Workflow{w}}
		a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
		settled(t, a, b)
		var events atomic.Int32
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for ev := range a.Events(ctx, NewEvents) {
				if (ev.Kind == retry.Paused || ev.Kind == retry.Resumed) && ev.Note == "workflow wide, by ann" {
					events.Add(1)
				}
			}
		}()
		synctest.Wait()
		check(t, a.PauseWorkflow(t.Context(), "wide", "ann"))
		var runs []Started
		for n := range 20 {
			runs = append(runs, started(t, b.Engine, w, n, Key(fmt.Sprint(n))))
		}
		time.Sleep(time.Minute)
		begun.want(t, "")
		b.kill() // its shards get another owner
		c := joined(t, s, "c", cfg)
		settled(t, a, c)
		time.Sleep(time.Minute)
		begun.want(t, "")
		if p := pauseOf(t, c.Engine, "wide"); p == nil || p.By != "ann" || p.Partly {
			t.Errorf("at another member: %+v", p)
		}
		if i := must(c.Get(t.Context(), runs[7].ID)); i.WorkflowPaused == nil || i.State != StateQueued {
			t.Errorf("at another member: %+v", i)
		}
		check(t, c.ResumeWorkflow(t.Context(), "wide", "ann"))
		for _, run := range runs {
			if i := must(c.Wait(t.Context(), run.ID)); i.State != StateSucceeded {
				t.Errorf("%+v", i)
			}
		}
		time.Sleep(time.Minute)
		if events.Load() != 2 {
			t.Errorf("%d events of 2 commands in 8 shards", events.Load())
		}
	})
}

// A pause that not all shards have stored says so, and the same command completes it.
func TestClusterPausesAWorkflowPartly(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("wide", nothing()))
		cfg := Config{Workflows: []*Workflow{w}}
		a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
		settled(t, a, b)
		b.kill() // for a moment its shards have no owner
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := a.PauseWorkflow(ctx, "wide", "ann")
		if !errors.Is(err, ErrAway) || !strings.Contains(err.Error(), "and the others have stored it: repeat the command") {
			t.Fatalf("PauseWorkflow() = %v", err)
		}
		short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		if p, err := a.PausedWorkflows(short); !errors.Is(err, ErrAway) || p["wide"].By != "ann" {
			t.Errorf("PausedWorkflows() = %v, %v", p, err)
		}
		settled(t, a)
		if p := pauseOf(t, a.Engine, "wide"); p == nil || !p.Partly {
			t.Errorf("%+v", p)
		}
		check(t, a.PauseWorkflow(t.Context(), "wide", "bob"))
		if p := pauseOf(t, a.Engine, "wide"); p == nil || p.Partly || p.By != "ann" {
			t.Errorf("%+v", p)
		}
	})
}

// A pause that no shard has stored does not say that others have stored it.
func TestClusterPausesAWorkflowNowhere(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("wide", nothing()))
		log := s.Join("a")
		log.Disturb(func(op memlog.Operation) memlog.Fault {
			if op.Name == "lease" {
				return memlog.Fault{Before: errors.New("no lease")} // it owns no shard
			}
			return memlog.Fault{}
		})
		a := memberOf(t, log, Config{Workflows: []*Workflow{w}})
		err := a.PauseWorkflow(t.Context(), "wide", "ann")
		if !errors.Is(err, ErrAway) || !strings.HasSuffix(err.Error(), ": repeat the command") || strings.Contains(err.Error(), "stored") {
			t.Errorf("PauseWorkflow() = %v", err)
		}
		log.Disturb(nil)
		settled(t, a)
		if p := pauseOf(t, a.Engine, "wide"); p != nil {
			t.Errorf("%+v", p)
		}
		check(t, a.PauseWorkflow(t.Context(), "wide", "ann"))
	})
}

func TestClusterRefusesAPauseWhileAMemberIsOld(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("wide", nothing()))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		old := joinedOld(t, s, "old", Config{Workflows: []*Workflow{w}})
		settled(t, a, old)
		const text = "old (old-2) can read stored data up to format 1, and a paused workflow needs format 3: finish the rolling deploy, then pause it again"
		if err := a.PauseWorkflow(t.Context(), "wide", "ann"); !errors.Is(err, ErrOldMember) || !strings.Contains(err.Error(), text) {
			t.Errorf("PauseWorkflow() = %v", err)
		}
		// The owner checks too: the process that sends the call may not know the old member yet.
		for _, sh := range a.router.Shards() {
			if _, err := sh.Perform(t.Context(), &shard.Call{Op: shard.OpPauseWorkflow, Workflow: "wide"}); !errors.Is(err, ErrOldMember) {
				t.Errorf("shard %d: %v", sh.Number, err)
			}
		}
		if pauseOf(t, a.Engine, "wide") != nil {
			t.Error("it is paused")
		}
		waited(t, started(t, a.Engine, w, 0))
		check(t, old.Close(t.Context()))
		settled(t, a)
		check(t, a.PauseWorkflow(t.Context(), "wide", "ann"))
	})
}
