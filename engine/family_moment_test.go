package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// TestChildExpiresWithItsParent has both deadlines in the time in which no process runs: the parent
// cancels its child in the turn in which the child expires too.
func TestChildExpiresWithItsParent(t *testing.T) {
	t.Parallel()
	child := MustFlow("child", func(f *Flow, _ int) (string, error) {
		return "", Sleep(f, "month", 30*24*time.Hour)
	}, Timeout(2*time.Hour))
	parent := MustFlow("parent", func(f *Flow, _ int) (string, error) {
		return Child[string](f, "one", child, 1)
	}, Timeout(time.Hour))
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		open := func() *Engine {
			return must(Open(t.Context(), Config{Log: store.Open(), Logger: quiet(), Workflows: []*Workflow{parent, child}}))
		}
		e := open()
		id := must(e.Start(t.Context(), parent, 1)).ID
		time.Sleep(time.Minute)
		var of string
		for _, s := range must(e.Get(t.Context(), id)).Steps {
			if s.Kind == machine.ChildKind {
				of = s.Child
			}
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		e = open()
		defer func() { _ = e.Close(context.Background()) }()
		if run := must(e.Wait(t.Context(), id)); run.State != StateDead {
			t.Errorf("the parent is %s", run.State)
		}
		if run := must(e.Wait(t.Context(), of)); run.State != StateCanceled {
			t.Errorf("the child is %s: %s", run.State, run.Error)
		}
	})
}

// TestCancelWhenTheFunctionHasReturned cancels a run after its function has returned, and before the
// owner of the shard knows that: the run undoes its operations.
func TestCancelWhenTheFunctionHasReturned(t *testing.T) {
	t.Parallel()
	for _, succeeds := range []bool{true, false} {
		release, undone := make(chan struct{}), 0
		w := MustFlow("late", func(f *Flow, _ int) (string, error) {
			if _, err := DoUndo(f, "a", func(context.Context) (int, error) { return 1, nil }, func(context.Context, *int) error { undone++; return nil }); err != nil {
				return "", err
			}
			<-release
			if succeeds {
				return "done", nil
			}
			return "", Again(f, 2)
		})
		synctest.Test(t, func(t *testing.T) {
			release = make(chan struct{})
			e := must(Open(t.Context(), Config{Log: new(memlog.Store).Open(), Logger: quiet(), Workflows: []*Workflow{w}}))
			defer func() { _ = e.Close(context.Background()) }()
			id := must(e.Start(t.Context(), w, 1)).ID
			synctest.Wait()
			run := must(machine.ParseID(id))
			err := e.shard().Do(t.Context(), func(t shard.Recorder) error {
				close(release)
				time.Sleep(time.Millisecond) // the function returns; the owner's goroutine is here, so the end of the call waits
				rec, err := t.State().Cancel(run, "tester", t.Now())
				if err == nil {
					t.Record(rec)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if info := must(e.Wait(t.Context(), id)); info.State != StateCanceled || undone != 1 || info.ContinuedBy != "" {
				t.Errorf("the run is %s, continued by %q, %d undos", info.State, info.ContinuedBy, undone)
			}
		})
	}
}
