// Package tidy has a process take less memory for what it uses, when that is much
// and there is little to do.
package tidy

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A process may take as much again as it uses before it cleans up. One that uses
// next to nothing would clean up all the time while it has much to do, so it may
// take smallHeap in any case. With a million runs that wait it would be hundreds of
// megabytes for nothing: then it cleans up earlier, except while there is so much
// to do that cleaning up would be most of it.
const (
	smallHeap  = 32 << 20
	mostGC     = 800
	largeHeap  = 150 << 20
	largeGC    = 25
	manyGC     = 2 // in every: there is much to do
	quietTicks = 5 // without any, and it is over
	every      = 2 * time.Second
)

// memory says how much memory may be taken before it is cleaned up.
type memory struct {
	cycles uint64
	quiet  int
	busy   bool
}

// look looks at the heap that is in use and the number of times it was cleaned up,
// and returns the percentage to be set, and whether there is memory to be given back.
func (m *memory) look(live, cycles uint64) (percent int, release bool) {
	n := cycles - m.cycles
	m.cycles = cycles
	m.quiet++
	if n > 0 {
		m.quiet = 0
	}
	switch {
	case live <= largeHeap:
		m.busy = false
		return small(live), false
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

// small returns the percentage at which a process of that size takes smallHeap,
// in few steps: each change stops everybody for a moment.
func small(live uint64) int {
	percent := 100
	for percent < mostGC && live*uint64(2*percent/100) <= smallHeap {
		percent *= 2
	}
	return percent
}

// Run sets how much memory may be taken before it is cleaned up, unless
// somebody has by GOGC, until the context ends.
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
		percent, release := m.look(sample[0].Value.Uint64(), sample[1].Value.Uint64())
		if percent != set {
			set = percent
			debug.SetGCPercent(set)
		}
		if release {
			// Not debug.FreeOSMemory, which would hold up everybody for tens of
			// milliseconds: what is free after this is given back bit by bit.
			runtime.GC()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
