// Package tidy lowers the memory of a large process while it has little to do,
// by adjusting GOGC.
package tidy

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// With GOGC=100 the heap may double before a collection. A process with a very
// small heap would collect all the time under load, so its heap may always grow
// to smallHeap. A process with a million waiting runs would use hundreds of
// megabytes for nothing, so it collects earlier, except under so much load that
// collections would take most of the time.
const (
	smallHeap  = 32 << 20
	mostGC     = 400 // the live heap of an idle process may double when load begins, before the next update
	largeHeap  = 150 << 20
	largeGC    = 25
	manyGC     = 2 // this many collections within the interval every mean high load
	quietTicks = 5 // the load is over after this many intervals without a collection
	every      = 2 * time.Second
)

// memory decides the percentage of GOGC.
type memory struct {
	cycles uint64
	quiet  int
	busy   bool
}

// update gets the live heap and the number of collections so far, and returns
// the percentage to set and whether to run a collection now.
func (m *memory) update(live, cycles uint64) (percent int, release bool) {
	n := cycles - m.cycles
	m.cycles = cycles
	m.quiet++
	if n > 0 {
		m.quiet = 0
	}
	switch {
	case live <= largeHeap:
		m.busy = false
		return smallHeapPercent(live), false
	case n >= manyGC:
		m.busy = true
	case m.busy && m.quiet >= quietTicks:
		m.busy = false
		return largeGC, true
	}
	if m.busy {
		return 100, false
	}
	return largeGC, false
}

// smallHeapPercent returns the percentage at which a process with this live
// heap uses smallHeap. It has few steps, because each change stops all
// goroutines for a moment.
func smallHeapPercent(live uint64) int {
	percent := 100
	for percent < mostGC && live*uint64(2*percent/100) <= smallHeap {
		percent *= 2
	}
	return percent
}

// Run adjusts GOGC until the context ends. It does nothing if the environment
// sets GOGC.
func Run(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var m memory
	for set := 100; ; {
		metrics.Read(sample)
		percent, release := m.update(sample[0].Value.Uint64(), sample[1].Value.Uint64())
		if percent != set {
			set = percent
			debug.SetGCPercent(set)
		}
		if release {
			// Not debug.FreeOSMemory, which would stop all goroutines for tens
			// of milliseconds: after a collection the runtime returns free
			// memory gradually.
			runtime.GC()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
