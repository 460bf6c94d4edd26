package engine

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// BenchmarkRun measures runs of one step that does nothing, from the start until the success is
// recorded, with 16 concurrent callers.
func BenchmarkRun(b *testing.B) {
	for _, c := range []struct {
		name string
		mode Durability
	}{{"full", Full}, {"os", OS}} {
		b.Run(c.name, func(b *testing.B) {
			var left sync.WaitGroup
			w := must(NewWorkflow("noop", Step("do", func(context.Context, json.RawMessage) (bool, error) { left.Done(); return true, nil })))
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
