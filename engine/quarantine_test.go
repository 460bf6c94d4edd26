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

// pass lets time pass, in which the process dies as often as it is killed.
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

// However many runs kill the process, and whenever they do, those beside them succeed.
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

// A process that dies for another reason costs its runs a moment: they all begin again, also
// when each of them takes long.
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
