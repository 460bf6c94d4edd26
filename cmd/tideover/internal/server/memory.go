package server

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A process may take as much again as it uses before it cleans up, which is right
// for a small one. With a million runs that wait it would be hundreds of
// megabytes for nothing: then it cleans up earlier.
const (
	largeHeap   = 150 << 20
	largeGC     = 25
	memoryEvery = 2 * time.Second
)

// watchMemory sets how much memory may be taken before it is cleaned up, unless
// somebody has by GOGC, until the context ends.
func watchMemory(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	usual := debug.SetGCPercent(100)
	defer debug.SetGCPercent(usual)
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for {
		metrics.Read(sample)
		if sample[0].Value.Uint64() > largeHeap {
			debug.SetGCPercent(largeGC)
		} else {
			debug.SetGCPercent(usual)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
