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
// megabytes for nothing, so it collects earlier. Under high load that would take
// too much processor time: then its heap may grow by busyGrowth.
const (
	smallHeap  = 32 << 20
	mostGC     = 400 // the live heap of an idle process may double when load begins, before the next update
	largeHeap  = 150 << 20
	largeGC    = 25
	busyGrowth = 160 << 20
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
		return busyPercent(live), false
	}
	return largeGC, false
}

// busyPercent returns the percentage at which a large heap grows by busyGrowth
// before a collection, rounded down to a multiple of 10: each change stops all
// goroutines for a moment.
func busyPercent(live uint64) int {
	return min(max(int(100*busyGrowth/live)/10*10, largeGC), 100)
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
			// memory gradually. It keeps as much as the heap had at the end
			// of the collection, with the garbage that was found. The second
			// collection finds none.
			runtime.GC()
			runtime.GC()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
