package tidy

import "testing"

func TestPercentage(t *testing.T) {
	const large = 2 * largeHeap
	var m memory
	cycles := uint64(0)
	for _, tt := range []struct {
		name    string
		live    uint64
		cycles  uint64 // collections since the last update
		times   int
		percent int
		release bool // at the last of the times
	}{
		{"a tiny process takes some megabytes", 1 << 20, 50, 3, mostGC, false},
		{"one of eight", 8 << 20, 50, 3, 400, false},
		{"one of twelve", 12 << 20, 50, 3, 200, false},
		{"a small one takes as much again", smallHeap, 50, 3, 100, false},
		{"a large one that does little takes less", large, 0, 2, largeGC, false},
		{"cleaning up now and then is little", large, manyGC - 1, 10, largeGC, false},
		{"much to do", large, manyGC, 1, 50, false},
		{"it goes on while there is something to clean up", large, 1, 20, 50, false},
		{"a pause is not the end", large, 0, quietTicks - 1, 50, false},
		{"something again", large, 1, 1, 50, false},
		{"a busy heap that is hardly large may double", largeHeap + 1, 1, 1, 100, false},
		{"a heap of twice that growth grows by half", 2 * busyGrowth, 1, 1, 50, false},
		{"a very large one by a quarter", 100 * busyGrowth, 1, 1, largeGC, false},
		{"the end, and memory is given back", large, 0, quietTicks, largeGC, true},
		{"once", large, 0, 10, largeGC, false},
		{"small again while much is done", smallHeap, 50, 1, 100, false},
	} {
		for n := range tt.times {
			cycles += tt.cycles
			percent, release := m.update(tt.live, cycles)
			last := n == tt.times-1
			if last && (percent != tt.percent || release != tt.release) || !last && release {
				t.Fatalf("%s: look %d = %d, %v; want %d, %v at the last of %d", tt.name, n+1, percent, release, tt.percent, tt.release, tt.times)
			}
		}
	}
}
