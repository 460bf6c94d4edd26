package cluster

import "testing"

func TestStartsThatComeOneByOneAreSpread(t *testing.T) {
	var a startPlacement
	shards := map[int]int{}
	for range 320 {
		shards[a.next(32)]++
		a.done()
	}
	if len(shards) < 25 {
		t.Errorf("320 starts, one after the other, went to %d of 32 shards", len(shards))
	}
	clear(shards)
	for range 320 {
		shards[a.next(32)]++
	}
	if len(shards) > 12 {
		t.Errorf("320 starts at once went to %d of 32 shards, and share few entries", len(shards))
	}
}
