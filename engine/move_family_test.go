package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/engine/move"
)

// openFamilies has runs that wait in every way of their own: for children, for an undo and for the
// answer to a question.
type openFamilies struct {
	parent, child, trip, asks *Workflow
	ready                     atomic.Bool // the undo can succeed
	undone                    atomic.Int32

	ids [3]string // of the parent, of the run that undoes and of the one that asks
}

func newOpenFamilies() *openFamilies {
	o := new(openFamilies)
	o.child = MustFlow("child", func(f *Flow, _ int) (string, error) { return Await[string](f, "go") })
	o.parent = MustFlow("parent", func(f *Flow, _ int) (string, error) {
		got, err := Children[int, string](f, "many", o.child, []int{0, 1}, Parallel(2))
		return strings.Join(got, " "), err
	})
	o.trip = MustFlow("trip", func(f *Flow, _ int) (string, error) {
		_, err := DoUndo(f, "a", func(context.Context) (int, error) { return 1, nil }, func(context.Context, *int) error {
			if !o.ready.Load() {
				return errors.New("not yet")
			}
			o.undone.Add(1)
			return nil
		}, UndoPolicy("fixed(1m) attempts=10000"))
		return "", errors.Join(err, errors.New("no car is left"))
	})
	o.asks = MustFlow("asks", func(f *Flow, _ int) (string, error) {
		a, err := Ask(f, "boss", Question{Text: "Go on?"})
		return a.Choice, err
	})
	return o
}

func (o *openFamilies) workflows() []*Workflow { return []*Workflow{o.parent, o.child, o.trip, o.asks} }

// start starts the runs.
//
// real clock: it is called in a bubble
func (o *openFamilies) start(t *testing.T, e *Engine) {
	t.Helper()
	for i, w := range []*Workflow{o.parent, o.trip, o.asks} {
		o.ids[i] = started(t, e, w, 1).ID
	}
	time.Sleep(10 * time.Minute)
}

// children returns the children of the parent.
func (o *openFamilies) children(t *testing.T, e *Engine) (ids []string) {
	t.Helper()
	for _, s := range must(e.Get(t.Context(), o.ids[0])).Steps {
		if s.Child != "" {
			ids = append(ids, s.Child)
		}
	}
	return ids
}

// check checks that the runs are open, and are in the lists where they belong.
func (o *openFamilies) check(t *testing.T, e *Engine, where string) {
	t.Helper()
	synctest.Wait()
	for name, c := range map[string]struct {
		filter Filter
		want   []string
	}{
		"asking":  {Filter{Asking: true}, o.ids[2:]},
		"undoing": {Filter{States: []string{StateUndoing}}, o.ids[1:2]},
		"parents": {Filter{Workflow: "parent"}, o.ids[:1]},
		"child":   {Filter{Workflow: "child", States: []string{StateWaiting}}, o.children(t, e)},
	} {
		c.filter.Fresh, c.filter.Limit = true, 100
		got := map[string]bool{}
		for _, run := range must(e.List(t.Context(), c.filter)).Runs {
			got[run.ID] = true
		}
		for _, id := range c.want {
			if !got[id] {
				t.Errorf("%s: run %s is not in the list %s", where, id, name)
			}
			delete(got, id)
		}
		if len(got) > 0 || name == "child" && len(c.want) != 2 {
			t.Errorf("%s: the list %s has also %v; %d children", where, name, got, len(c.want))
		}
	}
	if run := must(e.Get(t.Context(), o.ids[1])); run.State != StateUndoing {
		t.Errorf("%s: the run that undoes is %s", where, run.State)
	}
	if run := must(e.Get(t.Context(), o.ids[2])); !run.Asking {
		t.Errorf("%s: the run that asks is %s", where, run.State)
	}
}

// end ends the runs, and checks how.
func (o *openFamilies) end(t *testing.T, e *Engine, where string) {
	t.Helper()
	o.undone.Store(0)
	o.ready.Store(true)
	for _, id := range o.children(t, e) {
		if err := e.Signal(t.Context(), id, "go", "now", ID("once")); err != nil {
			t.Error(err)
		}
	}
	if err := e.Answer(t.Context(), o.ids[2], "boss", Answer{Choice: Approve, By: "ada"}); err != nil {
		t.Error(err)
	}
	for i, want := range []string{`succeeded: "now now"`, "dead: no car is left", `succeeded: "approve"`} {
		run := must(e.Wait(t.Context(), o.ids[i]))
		if got := run.State + ": " + string(run.Output) + run.Error; got != want {
			t.Errorf("%s: the run is %s, want %s", where, got, want)
		}
	}
	if n := o.undone.Load(); n != 1 {
		t.Errorf("%s: undone %d times", where, n)
	}
	o.ready.Store(false)
}

// TestMovesAndBackupsKeepFamilies moves runs that wait for children, undo and ask from a folder to a
// cluster and back, and opens a backup. The lists are right, also after they were deleted.
func TestMovesAndBackupsKeepFamilies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOpenFamilies()
		cfg := Config{Workflows: o.workflows(), Logger: quiet(), snapshotAfter: 3000, uptime: noUptime}
		dir := t.TempDir()
		open := func(name string) *Engine {
			cfg.Dir = filepath.Join(dir, name)
			return must(Open(t.Context(), cfg))
		}
		moved := func(from, to journal.Log, closers ...interface{ Close() error }) {
			must(move.Move(t.Context(), from, to, move.Options{Limited: limitedOf(o.workflows()...)}))
			for _, c := range closers {
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		e := open("folder")
		o.start(t, e)
		o.check(t, e, "folder")
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, file := range must(filepath.Glob(filepath.Join(dir, "folder", "view.db*"))) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		e = open("folder")
		o.check(t, e, "folder with new lists")
		if err := errors.Join(e.Backup(t.Context(), filepath.Join(dir, "copy")), e.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		s := &memlog.Store{Shards: 4}
		log, mover := folder(t, filepath.Join(dir, "folder")), s.Join("mover")
		moved(log, mover, log, mover)
		cfg.Dir = ""
		a, b := joined(t, s, "a", cfg), joined(t, s, "b", cfg)
		settled(t, a, b)
		time.Sleep(10 * time.Minute)
		o.check(t, a.Engine, "cluster")
		if err := errors.Join(a.Close(t.Context()), b.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		log, mover = folder(t, filepath.Join(dir, "back")), s.Join("mover")
		moved(mover, log, log, mover)
		for _, name := range []string{"back", "copy"} {
			e := open(name)
			time.Sleep(10 * time.Minute)
			o.check(t, e, name)
			o.end(t, e, name)
			if err := e.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
