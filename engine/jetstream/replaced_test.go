package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

func TestAProcessThatOutlivesItsClusterEnds(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 2}
	log := openTest(t, cfg)
	l := mustLease(t, log, 0)
	appendEntries(t, l, 1, 3)
	if err := log.Err(); err != nil || !isOpen(log.Ended()) {
		t.Fatalf("Err() = %v of a log that is of use", err)
	}
	wiped(t, nodes, cfg)
	anew := openTest(t, cfg)
	if !anew.Made() {
		t.Fatal("the cluster was not made anew")
	}
	testwait.Receive(t, "Ended() of who was in the old one", log.Ended())
	wantErr(t, "Err", log.Err(), ErrReplaced, cfg.Name, "a new cluster was created", "Start this process again")
	testwait.Receive(t, "Lost() of its lease", l.Lost())
	wantErr(t, "Append", tryAppend(t.Context(), l, 4), journal.ErrStale)
	_, err := log.Lease(t.Context(), 0)
	wantErr(t, "Lease", err, ErrReplaced)
	if shards, _ := log.Assigned(); len(shards) != 0 {
		t.Errorf("Assigned() = %v; want none", shards)
	}
	if err := log.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	natstest.Wait(t, func(ctx context.Context) error {
		if members := anew.Members(); !slices.Equal(members, []string{anew.Member()}) {
			return fmt.Errorf("the members of the new one are %q", members)
		}
		return nil
	})
	appendEntries(t, mustLease(t, anew, 0), 1, 2)
	again := openTest(t, cfg)
	if again.Made() || again.ClusterID() != anew.ClusterID() {
		t.Error("who is started again is in another cluster")
	}
}

func TestWhoHasJoinedAnotherClusterLeavesItsRoster(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 1}
	log := openTest(t, cfg)
	wiped(t, nodes, cfg)
	anew := openTest(t, cfg)
	// Join as if the process had read the settings just before the cluster was replaced.
	if err := log.member.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	testwait.Receive(t, "Ended()", log.Ended())
	natstest.Wait(t, func(ctx context.Context) error {
		_, err := anew.backend.bucket.get(ctx, memberKey(log.Member()))
		if !errors.Is(err, errNoMessage) {
			// If it tried to leave before its record was stored, the record stays until
			// the others expel it.
			makeSilent(anew, log.Member(), anew.backend.timing.expelAt)
			return fmt.Errorf("the record of a process that does not belong there is still there, or: %v", err)
		}
		return nil
	})
}

// beatUntil sends heartbeats until the bucket is at the revision.
func beatUntil(t *testing.T, log *Log, revision uint64) {
	t.Helper()
	for log.memberRevision() < revision {
		natstest.Wait(t, log.member.beat)
	}
}

// TestRevisionsOfAnotherClusterAreNotOurs replaces a cluster by a new one in which the
// record of a shard has the same revision as in the old one.
func TestRevisionsOfAnotherClusterAreNotOurs(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 1, LeaseTime: MaxLeaseTime} // so that no member reads the bucket by itself
	log := openTest(t, cfg)
	beatUntil(t, log, 40)
	l := mustLease(t, log, 0)
	appendEntries(t, l, 1, 9)
	wiped(t, nodes, cfg)
	anew := openTest(t, cfg)
	beatUntil(t, anew, l.own.record.revision-1)
	want := mustLease(t, anew, 0).own.record
	if want.revision != l.own.record.revision {
		t.Fatalf("the revisions are %d and %d", want.revision, l.own.record.revision)
	}
	if err := l.own.storeEnd(t.Context(), l.last.Load()); !errors.Is(err, errChanged) {
		t.Errorf("storeEnd = %v; want %v", err, errChanged)
	}
	if err := l.own.confirm(t.Context()); err == nil {
		t.Error("confirm = nil in another cluster")
	}
	if err := l.Release(); err != nil {
		t.Errorf("Release() = %v", err)
	}
	if got, err := anew.backend.shardRecord(t.Context(), 0); err != nil || got != want {
		t.Errorf("the record is %+v, %v; want %+v", got, err, want)
	}
}

func TestABucketOfAnotherClusterThatAReplicaStillHasIsNoReasonToEnd(t *testing.T) {
	t.Parallel()
	log := openTest(t, Config{Replicas: 1, URL: natstest.SharedNode(t).URL()})
	other := []record{{settingsKey, []byte(`{"id":"another"}`), 1}}
	wantPlain(t, "confirmCluster", log.backend.confirmCluster(t.Context(), other), "a replica of bucket "+log.backend.bucket.name+" is of another cluster")
	if err := log.Err(); err != nil {
		t.Errorf("Err() = %v; want none: the leader has ours", err)
	}
	mustLease(t, log, 0)
}
