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
		time.Sleep(11 * time.Minute)
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
