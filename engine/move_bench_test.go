package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// BenchmarkMove moves 200 000 runs that wait, from a folder to 32 shards in memory.
// They are in the log, or most of them in a snapshot, and are read from there.
func BenchmarkMove(b *testing.B) {
	for _, c := range []struct {
		name  string
		after int64
	}{{"log", 1 << 40}, {"snapshot", 1 << 20}} {
		b.Run(c.name, func(b *testing.B) { benchmarkMove(b, c.after) })
	}
}

func benchmarkMove(b *testing.B, snapshotAfter int64) {
	b.Helper()
	const n = 200_000
	dir := b.TempDir()
	w := must(NewWorkflow("wait", Step("do", func(context.Context, json.RawMessage) (bool, error) { return true, nil })))
	e := must(Open(b.Context(), Config{Dir: dir, Durability: OS, Logger: quiet(), snapshotAfter: snapshotAfter}))
	input := json.RawMessage(`{"pad":"` + strings.Repeat("x", 190) + `"}`)
	var callers sync.WaitGroup
	for k := range 16 {
		callers.Go(func() {
			for i := range n / 16 {
				must(e.Start(b.Context(), w, input, In(24*time.Hour), Key(fmt.Sprint(k, "/", i))))
			}
		})
	}
	callers.Wait()
	if err := e.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	from := folder(b, dir)
	for b.Loop() {
		if moved := must(move.Move(b.Context(), from, newRooms(32), move.Options{})); moved.Runs["scheduled"] != n {
			b.Fatalf("move.Move() = %+v", moved)
		}
		b.StopTimer()
		leased(b, from, func(_ int, l journal.Lease) {
			if err := l.Delete(b.Context(), "moved"); err != nil {
				b.Fatal(err)
			}
		})
		b.StartTimer()
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}
