package jetstream

import (
	"slices"
	"testing"
	"time"
)

// A process may read a state of the cluster that has its own new member record before
// its call of join, which stored the record, has returned.
func TestAMemberThatIsReadBeforeItHasJoinedGetsItsShards(t *testing.T) {
	b := &backend{timing: timingOf(DefaultLeaseTime)}
	member := newMembership(b, nil)
	view := newClusterView(b, member)
	state := &clusterState{revision: 7, members: map[string]memberRecord{"a": {}}, shards: make([]shardRecord, 2)}
	want := func(shards ...int) {
		t.Helper()
		if got, _ := view.assignedShards(); !slices.Equal(got, shards) {
			t.Fatalf("assigned: %v, want %v", got, shards)
		}
	}
	view.adopt(state, time.Now())
	want()
	_, changed := view.assignedShards()
	member.id, member.joined = "a", true
	view.adopt(state, time.Now())
	want(0, 1)
	if isOpen(changed) {
		t.Error("the change was not announced")
	}
	member.joined = false
	view.reassign()
	want()
}
