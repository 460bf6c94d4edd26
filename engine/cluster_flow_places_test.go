package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// failAppends makes the process unable to store entries of a shard.
func failAppends(m *member, shard int) {
	m.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
		if op.Name == "append" && op.Shard == shard {
			f.Before = errors.New("no leader")
		}
		return f
	})
}

// A function that has to run alone does not keep attempts of other shards from beginning while its
// shard can't store that it is called.
func TestClusterIsolatedFunctionThatCannotBeCalled(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		calls := 0
		suspect := MustFlow("suspect", func(f *Flow, n int) (int, error) {
			if calls++; calls == 1 {
				time.Sleep(time.Hour)
			}
			return n, nil
		}, Function(MaxLost(1)))
		step := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
		config := Config{Workflows: []*Workflow{suspect, step}}
		a := joined(t, s, "a", config)
		settled(t, a)
		run := started(t, a.Engine, suspect, 1, Key(keyOf(0, 8, 1)))
		synctest.Wait()
		if err := a.Pause(t.Context(), run.ID, "me"); err != nil {
			t.Fatal(err)
		}
		a.kill()
		b := joined(t, s, "b", config)
		settled(t, b)
		if i := must(b.Get(t.Context(), run.ID)); i.State != StatePaused || i.Steps[0].Lost != 1 {
			t.Fatalf("%s, lost %d times", i.State, i.Steps[0].Lost)
		}
		time.Sleep(10 * time.Second) // until the delay after the loss is over
		failAppends(b, 0)
		resumed := make(chan error, 1)
		go func() { resumed <- b.Resume(t.Context(), run.ID, "me") }()
		time.Sleep(time.Second)
		other := started(t, b.Engine, step, 1, Key(keyOf(1, 8, 1)))
		time.Sleep(20 * time.Second)
		if i := must(b.Get(t.Context(), other.ID)); i.State != StateSucceeded {
			t.Errorf("a run of another shard is %s", i.State)
		}
		b.log.Disturb(nil)
		if err := <-resumed; err != nil {
			t.Error(err)
		}
		if i := must(b.Wait(t.Context(), run.ID)); i.State != StateSucceeded || calls != 2 {
			t.Errorf("the suspect is %s after %d calls", i.State, calls)
		}
		wantFreePlaces(t, b.Engine)
		time.Sleep(time.Hour) // until the function of the killed process has returned
	})
}

// A function that has ended keeps no place while its shard can't store that.
func TestClusterEndedFunctionKeepsNoPlace(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := MustFlow("nap", func(_ *Flow, d time.Duration) (int, error) { time.Sleep(d); return 1, nil })
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}, maxFunctions: 1})
		settled(t, a)
		first := started(t, a.Engine, w, 5*time.Second, Key(keyOf(0, 8, 1)))
		synctest.Wait()
		failAppends(a, 0)
		queued := make(chan Started, 1)
		go func() { queued <- must(a.Start(context.Background(), w, time.Second, Key(keyOf(0, 8, 2)))) }()
		time.Sleep(20 * time.Second)
		other := started(t, a.Engine, w, time.Second, Key(keyOf(1, 8, 1)))
		time.Sleep(20 * time.Second)
		if i := must(a.Get(t.Context(), other.ID)); i.State != StateSucceeded {
			t.Errorf("a run of another shard is %s", i.State)
		}
		a.log.Disturb(nil)
		for _, run := range []Started{first, <-queued} {
			if i := must(a.Wait(t.Context(), run.ID)); i.State != StateSucceeded {
				t.Errorf("%s: %s", i.State, i.Error)
			}
		}
		wantFreePlaces(t, a.Engine)
	})
}

// wantFreePlaces checks that an engine that does nothing has given back all its places.
func wantFreePlaces(t *testing.T, e *Engine) {
	t.Helper()
	synctest.Wait()
	if c, want := e.process.Admission.Counts(), (admission.Counts{Attempts: e.cfg.Concurrency, Calls: e.cfg.maxFunctions}); c.Attempts != want.Attempts || c.Calls != want.Calls || c.Running != 0 || c.Isolated {
		t.Errorf("the counts are %+v, want %+v", c, want)
	}
}
