package shard

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
)

// While batches come without a pause, runs are indexed between them. In the bubble no time passes,
// so there is no pause.
func TestManyRunsAreIndexedBetweenBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := must(view.Open(t.Context(), filepath.Join(t.TempDir(), "view.db")))
		defer to.Close()
		h := new(health)
		h.init(slog.New(slog.DiscardHandler), nil)
		batches, written := make(chan viewJob), make(chan error)
		w := viewGoroutine{process: &Process{viewWriters: make(chan struct{}, 1)}, health: h, batches: batches, written: written}
		w.view.Store(to)
		var writing sync.WaitGroup
		writing.Go(w.run)
		defer writing.Wait()
		defer close(batches)

		at, n := time.Now(), 0
		batch := func() viewJob {
			b := view.Batch{Cursor: uint64(n + 1)}
			for range viewBatch {
				at = at.Add(time.Millisecond)
				id := machine.NewID(at.UnixNano(), uint64(n), uint64(n))
				b.Put = append(b.Put, view.Run{ID: id.String(), Workflow: "w", Status: fmt.Sprint("status", n), State: "succeeded", Created: at, Updated: at})
				n++
			}
			return viewJob{Batch: b, busy: true}
		}
		indexed := func() bool {
			return len(must(to.List(context.Background(), view.Filter{Search: "status0"})).Runs) == 1
		}
		for n <= maxUnindexed {
			if indexed() {
				t.Fatalf("the first of %d runs is indexed, although there was no pause", n)
			}
			batches <- batch()
			if err := <-written; err != nil {
				t.Fatal(err)
			}
		}
		batches <- batch() // which is received when some runs are indexed
		if !indexed() {
			t.Errorf("the first of %d runs is not indexed", n)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	})
}
