package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
)

// squares is a flow that makes many operations side by side and adds up their results.
type squares struct {
	calls, done atomic.Int64
	pad         string // part of each result
	*Workflow
}

func newSquares(pad string) *squares {
	f := &squares{pad: pad}
	type result struct {
		N   int
		Pad string
	}
	f.Workflow = MustFlow("squares", func(fl *Flow, n int) (sum int, err error) {
		f.calls.Add(1)
		items := make([]int, n)
		for i := range items {
			items[i] = i
		}
		results, err := Map(fl, "square", items, func(_ context.Context, i int) (result, error) {
			f.done.Add(1)
			return result{i * i, f.pad}, nil
		}, Parallel(100))
		for _, r := range results {
			sum += r.N
		}
		return sum, err
	})
	return f
}

// sumOfSquares returns the output of a run of squares.
func sumOfSquares(n int) string {
	sum := 0
	for i := range n {
		sum += i * i
	}
	return fmt.Sprint(sum)
}

func TestFanOutOfTenThousandIsRecorded(t *testing.T) {
	const n = 10_000
	f := newSquares("")
	e := must(Open(t.Context(), Config{Dir: t.TempDir(), Workflows: []*Workflow{f.Workflow}, Durability: OS, Logger: quiet()}))
	defer e.Close(context.Background())
	run := must(e.Start(t.Context(), f.Workflow, n))
	info := must(run.Wait(t.Context()))
	if got, want := string(info.Output), sumOfSquares(n); got != want || info.State != "succeeded" {
		t.Fatalf("%s with output %s, error %q; want %s", info.State, got, info.Error, want)
	}
	if calls, done := f.calls.Load(), f.done.Load(); calls > 3 || done != n {
		t.Errorf("%d calls of the function and %d operations; want at most 3, and %d", calls, done, n)
	}
	recorded := map[string]string{}
	stored, _ := must(store.Fold(t.Context(), e.shard().Lease)).Machine.Run(must(machine.ParseID(run.ID))) // Info has only some of so many
	for res := range machine.ReadResults(stored.Flow().Results()) {
		if name, item := strings.CutPrefix(res.Name, "item:"); item && res.Reason == 0 {
			recorded[name] = string(res.Data)
		}
	}
	for i := range n {
		name, want := fmt.Sprintf("square#%d", i), string(must(json.Marshal(map[string]any{"N": i * i, "Pad": ""})))
		if recorded[name] != want {
			t.Fatalf("operation %s has the recorded result %q, want %q", name, recorded[name], want)
		}
	}
	if len(recorded) != n {
		t.Errorf("%d operations are recorded, want %d", len(recorded), n)
	}
}

// BenchmarkFanOut measures a run with 10 000 operations, from its start to its end.
func BenchmarkFanOut(b *testing.B) {
	const n = 10_000
	f := newSquares("")
	e := must(Open(b.Context(), Config{Dir: b.TempDir(), Workflows: []*Workflow{f.Workflow}, Durability: Full, Logger: quiet()}))
	b.ReportAllocs()
	for b.Loop() {
		run := must(e.Start(b.Context(), f.Workflow, n))
		if info := must(run.Wait(b.Context())); string(info.Output) != sumOfSquares(n) {
			b.Fatalf("%s: %s", info.State, info.Error)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/run")
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "operations/s")
	if err := e.Close(context.Background()); err != nil {
		b.Error(err)
	}
}
