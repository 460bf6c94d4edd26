package cluster

import "testing"

func TestShardsThatDidNotAnswerAreNamed(t *testing.T) {
	t.Parallel()
	for want, silent := range map[string][]int{"shard 3 did not answer": {3}, "shards 3, 7 did not answer": {3, 7}} {
		if got := Away(silent).Error(); got != want {
			t.Errorf("away(%v) = %q, want %q", silent, got, want)
		}
	}
}
