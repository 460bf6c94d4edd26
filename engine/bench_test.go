package engine

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// BenchmarkRun measures runs of one step or one operation that does nothing, from the start until
// it was called, with 16 concurrent callers.
func BenchmarkRun(b *testing.B) {
	var left sync.WaitGroup
	step := must(NewWorkflow("noop", Step("do", func(context.Context, json.RawMessage) (bool, error) { left.Done(); return true, nil })))
	flow := MustFlow("noop", func(f *Flow, _ json.RawMessage) (bool, error) {
		return Do(f, "do", func(context.Context) (bool, error) { left.Done(); return true, nil })
	})
	for _, c := range []struct {
		name string
		mode Durability
		w    *Workflow
	}{{"full", Full, step}, {"os", OS, step}, {"flow-full", Full, flow}, {"flow-os", OS, flow}} {
		b.Run(c.name, func(b *testing.B) {
			w := c.w
			e := must(Open(b.Context(), Config{Dir: b.TempDir(), Workflows: []*Workflow{w}, Durability: c.mode, Logger: quiet()}))
			input := json.RawMessage(`{"pad":"` + strings.Repeat("x", 190) + `"}`)
			left.Add(b.N)
			b.ReportAllocs()
			b.ResetTimer()
			var callers sync.WaitGroup
			for k := range 16 {
				callers.Go(func() {
					for range (b.N + k) / 16 {
						must(e.Start(b.Context(), w, input))
					}
				})
			}
			callers.Wait()
			left.Wait()
			b.StopTimer()
			if err := e.Close(context.Background()); err != nil {
				b.Error(err)
			}
		})
	}
}
