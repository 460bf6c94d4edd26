package jetstream

import (
	"slices"
	"testing"
	"time"
)

func TestSilence(t *testing.T) {
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	members := func(revisions map[string]uint64) map[string]memberRecord {
		m := map[string]memberRecord{}
		for id, revision := range revisions {
			m[id] = memberRecord{revision: revision}
		}
		return m
	}
	r := silence{}
	want := func(now, silence int, ids ...string) {
		t.Helper()
		if got := r.longerThan(at(now), time.Duration(silence)*time.Second); !slices.Equal(got, ids) {
			t.Errorf("after %d s, silent for %d s: %q; want %q", now, silence, got, ids)
		}
	}
	r.update(members(map[string]uint64{"a": 1, "b": 2}), at(0))
	want(0, 1)
	r.update(members(map[string]uint64{"a": 3, "b": 2}), at(5))
	want(5, 5, "b")
	want(10, 5, "a", "b")
	r.update(members(map[string]uint64{"a": 3, "b": 2, "c": 9}), at(10))
	want(10, 5, "a", "b")
	r.restart(at(11))
	want(15, 5)
	want(16, 5, "a", "b", "c")
	r.update(members(map[string]uint64{"c": 10}), at(17))
	want(30, 5, "c")
	if len(r) != 1 {
		t.Errorf("%d members are known; want those that are there", len(r))
	}
}
