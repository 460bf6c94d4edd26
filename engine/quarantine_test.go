package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
)

// crashLoop opens an engine on one log again each time a run has killed the process.
type crashLoop struct {
	t      *testing.T
	store  memlog.Store
	config Config
	die    chan string // which run has killed the process
	deaths int
	killer *Workflow
	steady *Workflow
	engine *Engine
}

// newCrashLoop has two workflows. A run of "killer" kills the process after a delay, each time.
// A run of "steady" needs a time, and is harmless.
func newCrashLoop(t *testing.T, opts ...StepOption) *crashLoop {
	t.Helper()
	c := &crashLoop{t: t, die: make(chan string, 100)}
	c.killer = must(NewWorkflow("killer", Step("kill", func(ctx context.Context, after time.Duration) (int, error) {
		task, _ := TaskOf(ctx)
		select {
		case <-time.After(after):
			c.die <- task.Run
			<-ctx.Done()
		case <-ctx.Done():
		}
		return 0, ctx.Err()
	}, opts...)))
	c.steady = must(NewWorkflow("steady", Step("work", func(ctx context.Context, lasts time.Duration) (int, error) {
		select {
		case <-time.After(lasts):
			return 0, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}, opts...)))
	c.config = Config{Workflows: []*Workflow{c.killer, c.steady}, Logger: quiet()}
	c.open()
	t.Cleanup(func() { _ = c.engine.Close(gone()) })
	return c
}

func (c *crashLoop) open() {
	c.config.Log = c.store.Open()
	c.engine = must(Open(c.t.Context(), c.config))
}

// crash ends the engine as the death of the process does, and opens it again.
func (c *crashLoop) crash() {
	c.deaths++
	_ = c.engine.Close(gone())
	synctest.Wait() // the handlers that were running have ended
	for len(c.die) > 0 {
		<-c.die // they died with the process
	}
	c.open()
}

// pass lets virtual time pass. Each time a run kills the process, it is started again.
func (c *crashLoop) pass(d time.Duration) {
	for end := time.After(d); ; {
		select {
		case <-c.die:
			c.crash()
		case <-end:
			return
		}
	}
}

// finish lets time pass until all runs have ended, and returns them.
func (c *crashLoop) finish(ids []string) (all []*Info) {
	c.t.Helper()
	for range 10_000 {
		for len(all) < len(ids) {
			i := must(c.engine.Get(c.t.Context(), ids[len(all)]))
			if !i.Finished() {
				break
			}
			all = append(all, i)
		}
		if len(all) == len(ids) {
			return all
		}
		c.pass(time.Minute)
	}
	c.t.Fatalf("%d of %d runs have ended, after %d deaths of the process", len(all), len(ids), c.deaths)
	return nil
}

// check says that the harmless runs succeeded, and that the others are dead for the right reason.
func (c *crashLoop) check(all []*Info) {
	c.t.Helper()
	for _, i := range all {
		switch {
		case i.Workflow == "steady" && i.State != StateSucceeded:
			c.t.Errorf("a harmless run is %s (%s): %s", i.State, i.Reason, i.Error)
		case i.Workflow == "killer" && (i.State != StateDead || i.Reason != "lost" ||
			!strings.Contains(i.Error, "times in a row while an attempt of this step ran; this time no other attempt ran")):
			c.t.Errorf("a run that kills the process is %s (%s): %s", i.State, i.Reason, i.Error)
		}
	}
}

// start starts runs of a workflow.
func (c *crashLoop) start(w *Workflow, n int, input time.Duration) (ids []string) {
	for range n {
		ids = append(ids, started(c.t, c.engine, w, input).ID)
	}
	return ids
}

// However many runs kill the process, and whenever they do, the other runs succeed.
func TestRunsThatKillTheProcessAreFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		killers int
		after   time.Duration // of a killer
		lasts   time.Duration // a harmless run
		extra   int           // deaths beyond those that a killer is allowed
	}{
		{"one that kills at once", 1, 0, 3 * time.Second, 0},
		{"one that kills late", 1, time.Second, 3 * time.Second, 0},
		{"ten that kill at once", 10, 0, 3 * time.Second, 0},
		{"ten that kill late", 10, time.Second, 3 * time.Second, 0},
		{"ten, beside runs that last an hour", 10, time.Second, time.Hour, 10 * 9},
		{"two that kill after minutes", 2, 3 * time.Minute, time.Hour, 2 * 12},
		{"one that kills after an hour", 1, time.Hour, 2 * time.Hour, 13},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				loop := newCrashLoop(t)
				ids := append(loop.start(loop.steady, 5, c.lasts), loop.start(loop.killer, c.killers, c.after)...)
				ids = append(ids, loop.start(loop.steady, 5, c.lasts)...)
				loop.check(loop.finish(ids))
				t.Log(loop.deaths, "deaths")
				if most := c.killers*(DefaultMaxLost+1) + c.extra; loop.deaths > most || loop.deaths <= DefaultMaxLost {
					t.Errorf("the process died %d times, want at most %d", loop.deaths, most)
				}
			})
		})
	}
}

// New runs that come while a run kills the process again and again are not given up, nor are
// those that wait in the quarantine.
func TestNewRunsBesideAKillerSucceed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		loop := newCrashLoop(t)
		var ids []string
		for i := range 60 {
			ids = append(ids, loop.start(loop.steady, 1, 4*time.Second)...)
			if i%10 == 0 {
				ids = append(ids, loop.start(loop.killer, 1, time.Second)...)
			}
			loop.pass(time.Second)
		}
		loop.check(loop.finish(ids))
		if most := 6 * (DefaultMaxLost + 1); loop.deaths > most {
			t.Errorf("the process died %d times, want at most %d", loop.deaths, most)
		}
	})
}

// If a process dies for another reason, all its runs continue after a short delay, even if each of
// them takes long.
func TestRunsBeginAgainSoonAfterOneDeath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		loop := newCrashLoop(t)
		ids := loop.start(loop.steady, 100, time.Hour)
		loop.pass(time.Minute)
		loop.crash()
		loop.pass(2 * time.Minute)
		for _, id := range ids {
			if i := must(loop.engine.Get(t.Context(), id)); i.State != StateRunning {
				t.Errorf("a run is %s two minutes after the process was started again", i.State)
			}
		}
		loop.check(loop.finish(ids))
	})
}

// suspect makes the only run of an engine a suspect with so many losses, which is due.
func (c *crashLoop) suspect(id string, losses int) {
	c.t.Helper()
	for range losses {
		for must(c.engine.Get(c.t.Context(), id)).State != StateRunning {
			c.pass(time.Second)
		}
		c.crash()
	}
	c.pass(time.Until(*must(c.engine.Get(c.t.Context(), id)).Next))
	synctest.Wait()
}

// The info of a run says what a suspect waits for. The run can be paused, canceled and reset.
func TestASuspectIsVisibleAndUnderControl(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		loop := newCrashLoop(t)
		e := func() *Engine { return loop.engine }
		get := func(id string) (*Info, *StepInfo) {
			i := must(e().Get(t.Context(), id))
			return i, &i.Steps[0]
		}
		id := loop.start(loop.steady, 1, 24*time.Hour)[0]
		loop.pass(time.Second)
		loop.crash()
		i, s := get(id)
		if a := s.Attempts[0]; i.State != StateWaiting || s.Lost != 1 || s.MaxLost != DefaultMaxLost || s.Next == nil ||
			s.Quarantine != "the process died in the last attempt: the next one begins after a delay" ||
			a.Outcome != "lost" || a.Wait == nil || a.Wait.Delay != time.Second || a.Wait.By != "engine" {
			t.Errorf("after the first loss: %+v, %+v", s, a)
		}
		loop.suspect(id, 2)
		if i, s := get(id); i.State != StateRunning || s.Lost != 3 || !s.Attempts[3].Alone || s.Attempts[2].Alone ||
			s.Quarantine != "the process died in the last 3 attempts: while this one is new, no other attempt begins in its process" {
			t.Errorf("after three losses: %s, %+v", i.State, s)
		}

		// It runs alone. Another one waits for it, but not for ever.
		other := loop.start(loop.steady, 1, 20*time.Second)[0]
		loop.pass(9 * time.Second)
		if i, _ := get(other); i.State != StateQueued {
			t.Errorf("beside an attempt that runs alone, another run is %s", i.State)
		}
		loop.pass(2 * time.Second)
		if i, _ := get(other); i.State != StateRunning {
			t.Errorf("after an attempt has run alone for long enough, another run is %s", i.State)
		}

		// The process dies when the attempt is not alone any more: it is not given up.
		loop.crash()
		if i, s := get(id); i.State != StateWaiting || s.Lost != 4 {
			t.Errorf("a run that was not alone when the process died is %s: %+v", i.State, s)
		}
		// The other one has fewer losses, and comes first. The suspect waits until it ends.
		loop.pass(9 * time.Second)
		if i, s := get(id); i.State != StateQueued ||
			s.Quarantine != "the process died in the last 4 attempts: the next one begins when no other attempt runs in its process" {
			t.Errorf("while another attempt runs, the suspect is %s: %+v", i.State, s)
		}
		third := loop.start(loop.steady, 1, time.Second)[0]
		synctest.Wait()
		if i, _ := get(third); i.State != StateQueued {
			t.Errorf("while a suspect waits until it is alone, a new run is %s", i.State)
		}
		if err := e().Pause(t.Context(), id, "test"); err != nil {
			t.Fatal(err)
		}
		loop.pass(2 * time.Second)
		if i, _ := get(third); i.State != StateSucceeded {
			t.Errorf("after the suspect was paused, a new run is %s", i.State)
		}
		if err := e().Resume(t.Context(), id, "test"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if i, _ := get(id); i.State != StateQueued {
			t.Errorf("the suspect that was resumed is %s", i.State)
		}
		if err := e().Reset(t.Context(), id, "test"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if i, s := get(id); i.State != StateRunning || s.Lost != 0 || s.Quarantine != "" {
			t.Errorf("the suspect that was reset is %s: %+v", i.State, s)
		}
		if err := e().Cancel(t.Context(), id, "test"); err != nil {
			t.Fatal(err)
		}
	})
}

// The limits of workflows, steps and the process apply to suspects too.
func TestSuspectsKeepTheLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var running gauge
		work := func(ctx context.Context, _ int) (int, error) {
			running.enter()
			defer running.exit()
			select {
			case <-time.After(2 * time.Second):
				return 0, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		limited := must(NewWorkflow("limited", Step("a", work, Concurrency(2)), MaxRuns(3)))
		open := func() *Engine {
			return must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{limited}, Logger: quiet(), Concurrency: 4}))
		}
		e := open()
		var runs []Started
		for range 12 {
			runs = append(runs, started(t, e, limited, 1))
		}
		for range 6 {
			time.Sleep(time.Second)
			_ = e.Close(gone())
			synctest.Wait()
			e = open()
		}
		for _, r := range runs {
			if i := must(e.Wait(t.Context(), r.ID)); i.State != StateSucceeded {
				t.Errorf("a run is %s: %s", i.State, i.Error)
			}
		}
		if running.most.Load() != 2 {
			t.Errorf("%d attempts of the step at once, want 2", running.most.Load())
		}
		_ = e.Close(t.Context())
	})
}

// No run dies because of a process that dies without running suspects, or that ends in order.
func TestAnOrderlyEndMakesNoSuspect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		loop := newCrashLoop(t)
		id := loop.start(loop.steady, 1, time.Hour)[0]
		for range 10 {
			loop.pass(time.Minute)
			_ = loop.engine.Close(t.Context())
			loop.open()
		}
		if i := must(loop.engine.Get(t.Context(), id)); i.Steps[0].Lost != 0 || i.State == StateDead {
			t.Errorf("after ten orderly ends: %s, %+v", i.State, i.Steps[0])
		}
	})
}
