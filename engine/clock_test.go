package engine

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
)

// A turn may take long, for example because there are many runs. The time and the time since boot of
// an entry belong together all the same: else the next process would find that the clock was set, and
// would move all waits.
func TestASlowTurnIsNoJumpOfTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, boot := t.TempDir(), time.Now().Add(-time.Hour)
		w := must(NewWorkflow("w", Step("first", func(_ context.Context, in string) (string, error) { return in, nil })))
		var log bytes.Buffer
		open := func() *Engine {
			return must(Open(t.Context(), Config{
				Dir: dir, Workflows: []*Workflow{w}, Logger: slog.New(slog.NewTextHandler(&log, nil)), snapshotAfter: 1,
				uptime: func() (time.Duration, string) { return time.Since(boot), "boot" },
			}))
		}
		e := open()
		err := e.shard().Do(t.Context(), func(turn shard.Recorder) error {
			time.Sleep(5 * time.Second)
			turn.Record(machine.Record{Kind: machine.Purged})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // a snapshot is written, with the time of the last entry
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e = open()
		if text := log.String(); strings.Contains(text, "clock was set") {
			t.Errorf("the log says: %s", text)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
