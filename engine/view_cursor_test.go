package engine

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A snapshot may begin at an entry that changes no run. When the engine is opened again, the view
// has all changes up to the snapshot, and is not built anew.
func TestTheViewIsNotOlderThanTheSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := must(NewWorkflow("w", Step("first", func(_ context.Context, in string) (string, error) { return in, nil })))
		var log bytes.Buffer
		open := func() *Engine {
			return must(Open(t.Context(), Config{
				Dir: dir, Workflows: []*Workflow{w}, uptime: noUptime, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}))
		}
		e := open()
		run := must(e.Start(t.Context(), w, "x"))
		if _, err := run.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e = open() // writes an entry
		time.Sleep(snapshotAge + time.Minute)
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e = open()
		if text := log.String(); strings.Contains(text, "rebuilt") {
			t.Errorf("the log says: %s", text)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// The last entry may change only runs that wait to be written to the view. When they are written,
// the view has all changes up to that entry.
func TestTheViewHasTheLastEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := must(NewWorkflow("w", Step("first", func(_ context.Context, in string) (string, error) { return in, nil })))
		e := must(Open(t.Context(), Config{Dir: t.TempDir(), Workflows: []*Workflow{w}, uptime: noUptime, Logger: quiet()}))
		defer e.Close(context.Background())
		run := must(e.Start(t.Context(), w, "x", In(time.Hour)))
		sh := e.alone
		inOwner := func(do func()) {
			t.Helper()
			if err := sh.do(t.Context(), func(recorder) error { do(); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		// The run changes after it was taken from the changed runs, before it is written.
		inOwner(func() { sh.views.todo, sh.views.todoSeq = sh.owner.m.TakeChanged(), sh.owner.seq })
		if err := e.Pause(t.Context(), run.ID, "test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		inOwner(func() {
			if sh.views.cursor != sh.owner.seq {
				t.Errorf("the view has all changes up to entry %d; want %d", sh.views.cursor, sh.owner.seq)
			}
		})
	})
}
