//go:build linux

package clustertest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/jetstream/natstest"
)

// BenchmarkThreeNodes starts runs of one empty step and waits until all are
// complete: one worker, three servers that sync each message, 200 bytes of
// input.
func BenchmarkThreeNodes(b *testing.B) {
	for _, callers := range []int{16, 256, 1024} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) { benchmark(b, callers) })
	}
}

type payload struct {
	Text string
}

// benchmark starts runs from this many goroutines.
//
// real clock: it measures times, and expects none.
func benchmark(b *testing.B, callers int) {
	nodes := natstest.Start(b, 3)
	log, err := jetstream.Open(b.Context(), jetstream.Config{URL: nodes.URL(), Name: "bench", Shards: *benchShards})
	if err != nil {
		b.Fatal(err)
	}
	var done atomic.Int64
	w, err := engine.NewWorkflow("work", engine.Step("do", func(context.Context, payload) (int, error) {
		done.Add(1)
		return 0, nil
	}))
	if err != nil {
		b.Fatal(err)
	}
	e, err := engine.Open(b.Context(), engine.Config{
		Log: log, Dir: b.TempDir(), Workflows: []*engine.Workflow{w}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close(context.Background())
	input := payload{string(slices.Repeat([]byte("x"), 190))}
	for range 4 * *benchShards { // until every shard has its owner
		if _, err := e.Start(b.Context(), w, input); err != nil {
			b.Fatal(err)
		}
	}
	for done.Load() < int64(4**benchShards) {
		time.Sleep(10 * time.Millisecond)
	}
	done.Store(0)
	b.ResetTimer()
	var next atomic.Int64
	var all sync.WaitGroup
	took := make([][]time.Duration, callers)
	for c := range callers {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				begin := time.Now()
				if _, err := e.Start(context.Background(), w, input); err != nil {
					b.Error(err)
					return
				}
				took[c] = append(took[c], time.Since(begin))
			}
		})
	}
	all.Wait()
	started := b.Elapsed()
	for done.Load() < int64(b.N) {
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()
	latency := slices.Sorted(slices.Values(slices.Concat(took...)))
	b.ReportMetric(float64(b.N)/started.Seconds(), "starts/s")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "done/s")
	b.ReportMetric(float64(latency[len(latency)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(latency[len(latency)*99/100].Microseconds())/1000, "p99-ms")
}
