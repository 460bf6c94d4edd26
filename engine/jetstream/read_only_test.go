package jetstream

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
)

// A log that is ReadOnly finds what a member would find, and leaves no trace: no stream, and no message in
// the streams that there are.
func TestALogThatIsReadOnlyWritesNothing(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 1}
	reading := cfg
	reading.ReadOnly = true
	js, n := admin(t, nodes), names(cfg.Name)
	last := func() map[string]uint64 { // number of the last message of each stream
		found := map[string]uint64{}
		for _, name := range []string{n.bucketStream(), n.blobStream(), n.logStream(0)} {
			if s, err := js.Stream(t.Context(), name); err == nil {
				found[name] = s.CachedInfo().State.LastSeq
			}
		}
		return found
	}
	_, err := Open(t.Context(), reading)
	wantErr(t, "Open", err, ErrNoCluster, cfg.Name)
	if found := last(); len(found) > 0 {
		t.Fatalf("the streams %v were created", found)
	}

	// A process that was killed has left its record. Another one has left the cluster.
	member := openTest(t, cfg)
	appendEntries(t, mustLease(t, member, 0), 1, 3)
	if _, err := member.backend.bucket.putJSON(t.Context(), memberKey("dead"), memberRecord{Name: "dead", Beat: 7}, 0); err != nil {
		t.Fatal(err)
	}
	if err := member.Close(); err != nil {
		t.Fatal(err)
	}
	before := last()
	r := mustOpen(t, reading)
	peeked, err := r.Peek(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if first, last, err := peeked.Bounds(t.Context()); err != nil || first != 1 || last != 3 {
		t.Errorf("Bounds() = %d, %d, %v; want 1, 3", first, last, err)
	}
	if _, err := r.Lease(t.Context(), 0); err == nil {
		t.Error("a log that is ReadOnly has leased a shard")
	}
	ctx, cancel := context.WithCancel(t.Context())
	others, err := r.AwaitAlone(ctx, func([]journal.Member, time.Duration) { cancel() })
	if err == nil || len(others) != 1 || others[0].ID != "dead" {
		t.Errorf("AwaitAlone() = %v, %v during the lease time of the killed process; want the process", others, err)
	}
	r.backend.timing.expelAt = 0
	if others, err := r.AwaitAlone(t.Context(), func([]journal.Member, time.Duration) {}); err != nil || len(others) != 0 {
		t.Errorf("AwaitAlone() = %v, %v after the lease time of the killed process; want none", others, err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if after := last(); !maps.Equal(after, before) {
		t.Errorf("the last messages of the streams are %v; want %v", after, before)
	}
}
