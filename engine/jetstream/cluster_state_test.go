package jetstream

import (
	"errors"
	"slices"
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

func TestViewReadsTheBucket(t *testing.T) {
	v, err := newClusterState([]record{
		{settingsKey, []byte(`{"shards":3}`), 1},
		{memberKey("b"), []byte(`{"name":"host-2","beat":7}`), 9},
		{memberKey("a"), []byte(`{"name":"host-1"}`), 8},
		{shardKey(1), []byte(`{"owner":"a","epoch":4,"last":100}`), 7},
		{shardKey(99), []byte(`{}`), 6},
		{"something.else", []byte(`not json`), 5},
	}, 12, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got := v.shards[1]; got != (shardRecord{Owner: "a", Epoch: 4, Last: 100, revision: 7}) {
		t.Errorf("shard 1 is %+v", got)
	}
	if len(v.members) != 2 || v.members["b"].revision != 9 || v.members["b"].Name != "host-2" {
		t.Errorf("the members are %+v", v.members)
	}
	var all []int
	for _, id := range []string{"a", "b", "c"} { // c has just joined, and is not in it yet
		all = append(all, v.assigned(id)...)
	}
	if slices.Sort(all); len(slices.Compact(all)) != 3 {
		t.Errorf("assigned are %d; want each of three shards", all)
	}
	if v.assigned("") != nil {
		t.Error("shards are assigned to a member without an id")
	}
}

func TestViewSaysWhatItCantRead(t *testing.T) {
	for _, key := range []string{memberKey("a"), shardKey(0)} {
		if _, err := newClusterState([]record{{key, []byte("{"), 1}}, 1, 1); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("newClusterState with a bad %s = %v; want %v", key, err, journal.ErrDamaged)
		}
	}
}

func TestSignsOfLifeAreNoChange(t *testing.T) {
	view := func(records ...record) *clusterState {
		v, err := newClusterState(records, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := view(record{memberKey("a"), []byte(`{"beat":1}`), 1}, record{shardKey(0), []byte(`{"owner":"a"}`), 2})
	if !v.same(view(record{memberKey("a"), []byte(`{"beat":2}`), 3}, record{shardKey(0), []byte(`{"owner":"a"}`), 2})) {
		t.Error("a heartbeat is a change")
	}
	if v.same(view(record{shardKey(0), []byte(`{"owner":"a"}`), 2})) {
		t.Error("a member that leaves is none")
	}
	if v.same(view(record{memberKey("a"), []byte(`{"beat":1}`), 1}, record{shardKey(0), []byte(`{"owner":""}`), 4})) {
		t.Error("a release is none")
	}
}

func TestKeys(t *testing.T) {
	tests := []struct {
		key    string
		member string
		shard  int
	}{
		{memberKey("x1"), "x1", -1}, {shardKey(12), "", 12}, {settingsKey, "", -1}, {"shard.x", "", -1}, {"", "", -1},
	}
	for _, test := range tests {
		if member, shard := parseKey(test.key); member != test.member || shard != test.shard {
			t.Errorf("parseKey(%q) = %q, %d; want %q, %d", test.key, member, shard, test.member, test.shard)
		}
	}
}
