package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

// takeOver leases a shard as soon as its owner is gone.
func takeOver(t *testing.T, log *Log, shard int) (l *lease) {
	t.Helper()
	natstest.Wait(t, func(ctx context.Context) error {
		held, err := log.Lease(ctx, shard)
		if err == nil {
			l = held.(*lease)
		}
		return err
	})
	return l
}

func TestTheShardsOfAKilledProcessAreTakenOver(t *testing.T) {
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName()}
	log := openTest(t, cfg)
	c := startChild(t, cfg.URL, cfg.Name)
	id, _, _ := strings.Cut(c.await("owner"), " ")
	c.await("appended 20")
	testwait.Until(t, "the child is known", func() bool { return slices.Contains(log.Members(), id) })
	if _, err := log.Lease(t.Context(), 0); !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), "child") {
		t.Errorf("Lease while the child lives = %v; want %v, with its name", err, journal.ErrLocked)
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	acknowledged := max(c.last(), 20)
	expel(t, log, id, log.backend.timing.gone)
	l := takeOver(t, log, 0)
	first, last, err := l.Bounds(t.Context())
	if err != nil || last < acknowledged || last > acknowledged+1 {
		t.Fatalf("Bounds() = %d, %d, %v; want to %d, or one more without answer", first, last, err, acknowledged)
	}
	wantLog(t, l, 1, last)
	if members := log.Members(); slices.Contains(members, id) || len(members) != 1 {
		t.Errorf("Members() = %q; want us alone", members)
	}
}

func TestAMemberThatWasExpelledJoinsAgain(t *testing.T) {
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), Shards: 2}
	log, other := openTest(t, cfg), openTest(t, cfg)
	l, before := mustLease(t, log, 0), log.Member()
	if err := log.Serve(func(_ []byte, reply func([]byte)) { reply([]byte("here")) }); err != nil {
		t.Fatal(err)
	}
	r, err := other.backend.bucket.get(t.Context(), memberKey(before))
	if err != nil {
		t.Fatal(err)
	}
	natstest.Wait(t, func(ctx context.Context) error { // its heartbeats may come between
		if r, err = other.backend.bucket.get(ctx, memberKey(before)); err != nil {
			return err
		}
		return other.backend.bucket.remove(ctx, memberKey(before), r.revision)
	})
	testwait.Receive(t, "Lost() of an expelled member", l.Lost())
	wantErr(t, "Append of an expelled member", tryAppend(t.Context(), l, 1), journal.ErrStale, errExpelled.Error())
	natstest.Wait(t, func(ctx context.Context) error {
		id := log.Member()
		if id == before || !slices.Contains(other.Members(), id) {
			return fmt.Errorf("the member is %s, of %q", id, other.Members())
		}
		if answer, err := other.Ask(ctx, id, nil); err != nil || string(answer) != "here" {
			return fmt.Errorf("Ask(%s) = %q, %w", id, answer, err)
		}
		return nil
	})
	next := takeOver(t, log, 0)
	if next.Epoch() <= l.Epoch() {
		t.Errorf("epoch %d after %d", next.Epoch(), l.Epoch())
	}
	appendEntries(t, next, 1, 3)
}

func TestAMemberWithoutConnectionEndsItsLeasesBeforeOthersTakeThem(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 2, natstest.WithProxies())
	cfg := Config{Name: newName(), Shards: 1, Replicas: 1}
	cfg.URL = nodes.NodeURL(0)
	first := openTest(t, cfg)
	cfg.URL = nodes.NodeURL(1)
	second := openTest(t, cfg)
	l := mustLease(t, first, 0)
	appendEntries(t, l, 1, 3)
	id := first.Member()
	nodes.CutClients(0)
	awaitSilent(t, first, l, first.backend.timing.cutOff)
	expel(t, second, id, second.backend.timing.gone)
	next := takeOver(t, second, 0)
	wantErr(t, "Append without connection", tryAppend(t.Context(), l, 4), journal.ErrStale)
	appendEntries(t, next, 4, 5)
	nodes.HealClients(0)
	natstest.Wait(t, func(context.Context) error {
		if len(second.Members()) != 2 {
			return fmt.Errorf("the members are %q", second.Members())
		}
		return nil
	})
	if _, err := first.Lease(t.Context(), 0); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("Lease of what another has = %v; want %v", err, journal.ErrLocked)
	}
	wantLog(t, next, 1, 5)
}

func TestNoLeaseIsLostWhenTheServerThatLeadsTheBucketIsKilled(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 3)
	cfg := Config{URL: nodes.URL(), Name: newName(), Shards: 4}
	a, b := openTest(t, cfg), openTest(t, cfg)
	var leases []*lease
	for n := range 4 {
		leases = append(leases, mustLease(t, []*Log{a, b}[n%2], n))
	}
	ids := []string{a.Member(), b.Member()}
	nodes.Kill(nodes.Leader(a.backend.names.bucketStream()))
	awaitBeats(t, a)
	awaitBeats(t, b)
	for n, l := range leases {
		if !isOpen(l.Lost()) {
			t.Errorf("the lease of shard %d is lost: %v", n, context.Cause(l.own.life))
		}
		insist(t, l, 1)
	}
	if now := []string{a.Member(), b.Member()}; !slices.Equal(now, ids) {
		t.Errorf("the members are %q, before %q", now, ids)
	}
}

func TestAnOwnerThatWeHaveNotHeardOfYetIsRespected(t *testing.T) {
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName(), LeaseTime: MaxLeaseTime} // so that no member reads the bucket by itself
	log, other := openTest(t, cfg), openTest(t, cfg)
	mustLease(t, other, 0)
	log.view.mu.Lock()
	log.member.mu.Lock()
	state := *log.view.state
	state.members = map[string]memberRecord{log.member.id: log.member.record}
	log.view.state = &state
	log.member.mu.Unlock()
	log.view.mu.Unlock()
	_, err := log.Lease(t.Context(), 0)
	wantErr(t, "Lease", err, journal.ErrLocked)
}

func TestALeaseThatEndedByItselfIsFollowedByAnother(t *testing.T) {
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL(), LeaseTime: MaxLeaseTime}) // so that no member reads the bucket by itself
	l := mustLease(t, log, 0)
	appendEntries(t, l, 1, 2)
	for range 3 {
		l.own.lose(errSilent) // in the bucket we still own the shard
		next := mustLease(t, log, 0)
		if next.Epoch() <= l.Epoch() {
			t.Fatalf("epoch %d after %d", next.Epoch(), l.Epoch())
		}
		l = next
	}
	wantLog(t, l, 1, 2)
}

func TestWhatCouldNotBeReleasedIsReleasedLater(t *testing.T) {
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName()}
	log, other := openTest(t, cfg), openTest(t, cfg)
	l := mustLease(t, log, 0)
	l.own.lose(errSilent) // as if the bucket could not be written
	next := takeOver(t, other, 0)
	if next.Epoch() <= l.Epoch() {
		t.Errorf("epoch %d after %d", next.Epoch(), l.Epoch())
	}
}

func TestAMemberOfAnEarlierReleaseCanReadOnlyTheFirstFormat(t *testing.T) {
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL(), LeaseTime: MaxLeaseTime}) // so that no member reads the bucket by itself
	key := memberKey("0ldmember0")
	earlier := map[string]any{"name": "earlier", "joined": "2026-01-02T03:04:05Z", "wall": "2026-01-02T03:04:05Z", "beat": 1}
	var revision uint64
	natstest.Wait(t, func(ctx context.Context) (err error) {
		revision, err = log.backend.bucket.putJSON(ctx, key, earlier, revision)
		return err
	})
	natstest.Wait(t, log.follower.refresh)
	if behind := log.Behind(2); len(behind) != 1 || behind[0].Name != "earlier" || behind[0].Format != 1 {
		t.Errorf("Behind(2) = %+v; want the earlier member", behind)
	}
	if behind := log.Behind(1); len(behind) != 0 {
		t.Errorf("Behind(1) = %+v; want none", behind)
	}
	natstest.Wait(t, func(ctx context.Context) error { return log.backend.bucket.remove(ctx, key, revision) })
	natstest.Wait(t, log.follower.refresh)
	if behind := log.Behind(2); len(behind) != 0 {
		t.Errorf("Behind(2) = %+v after the member has left; want none", behind)
	}
}
