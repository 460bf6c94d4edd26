package sqlitelog

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

func BenchmarkAppend(b *testing.B) {
	for _, d := range []Durability{Full, OS} {
		for _, size := range []int{200, 1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%v/%dB", d, size), func(b *testing.B) {
				l := openTest(b, b.TempDir(), d)
				data := make([]byte, size)
				took := make([]time.Duration, 0, b.N)
				for n := uint64(0); b.Loop(); n++ {
					start := time.Now()
					mustAppend(b, l, n, data)
					took = append(took, time.Since(start))
				}
				reportTimes(b, took)
			})
		}
	}
}

// BenchmarkAppendBatches gathers the records of many callers into one entry, as
// an engine does.
func BenchmarkAppendBatches(b *testing.B) {
	const size = 200
	for _, d := range []Durability{Full, OS} {
		for _, callers := range []int{16, 256} {
			b.Run(fmt.Sprintf("%v/callers=%d", d, callers), func(b *testing.B) {
				l := openTest(b, b.TempDir(), d)
				asked := make(chan chan struct{}, callers)
				var work, group sync.WaitGroup
				took := make([][]time.Duration, callers)
				b.ResetTimer()
				work.Go(func() { appendBatches(b, l, asked, size) })
				for c := range callers {
					group.Go(func() {
						answer := make(chan struct{}, 1)
						for range (b.N + callers - 1) / callers {
							start := time.Now()
							asked <- answer
							<-answer
							took[c] = append(took[c], time.Since(start))
						}
					})
				}
				group.Wait()
				close(asked)
				work.Wait()
				b.StopTimer()
				reportTimes(b, slices.Concat(took...))
			})
		}
	}
}

// appendBatches appends one entry for all who wait, until asked is closed.
func appendBatches(b *testing.B, l journal.Lease, asked <-chan chan struct{}, size int) {
	var waiting []chan struct{}
	var data []byte
	for seq := uint64(0); ; seq++ {
		answer, ok := <-asked
		if !ok {
			return
		}
		waiting = append(waiting[:0], answer)
		for len(asked) > 0 && (len(waiting)+1)*size <= journal.MaxEntry {
			waiting = append(waiting, <-asked)
		}
		data = slices.Grow(data[:0], len(waiting)*size)[:len(waiting)*size]
		mustAppend(b, l, seq, data)
		for _, answer := range waiting {
			answer <- struct{}{}
		}
	}
}

func reportTimes(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	at := func(p int) float64 { return float64(took[len(took)*p/100].Nanoseconds()) / 1e3 }
	b.ReportMetric(at(50), "p50-µs")
	b.ReportMetric(at(99), "p99-µs")
	b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "records/s")
}

func openTest(tb testing.TB, dir string, d Durability) *lease {
	tb.Helper()
	log, err := Open(context.Background(), Config{Dir: dir, Durability: d})
	if err != nil {
		tb.Fatal(err)
	}
	held, err := log.Lease(context.Background(), 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := log.Close(); err != nil {
			tb.Errorf("close %s: %v", dir, err)
		}
	})
	return held.(*lease)
}

// testID returns an id that follows from the number of the entry.
func testID(seq uint64) (id journal.ID) {
	binary.BigEndian.PutUint64(id[8:], seq)
	return id
}

func mustAppend(tb testing.TB, l journal.Lease, expected uint64, data []byte) {
	tb.Helper()
	seq, err := l.Append(context.Background(), expected, testID(expected+1), data)
	if err != nil || seq != expected+1 {
		tb.Fatalf("append after %d = %d, %v; want %d", expected, seq, err, expected+1)
	}
}
