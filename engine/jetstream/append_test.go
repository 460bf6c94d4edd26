package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

// smuggle stores an entry in the stream without the lease, which does not know of it.
func smuggle(t *testing.T, l *lease, e journal.Entry, change func(*nats.Msg)) {
	t.Helper()
	m := encode(l.subject, e)
	if change != nil {
		change(m)
	}
	if _, err := l.stream.publish(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestAnswersThatWereLost(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	ours := func(l *lease) journal.Entry {
		return journal.Entry{Seq: 3, Epoch: l.own.epoch, ID: testID(3), Data: testData(3)}
	}
	tests := []struct {
		name   string
		before func(t *testing.T, l *lease) // creates the situation in which the append is repeated
		want   error
		lost   bool
	}{
		{"nothing was recorded", func(*testing.T, *lease) {}, nil, false},
		{"it was recorded", func(t *testing.T, l *lease) {
			t.Helper()
			smuggle(t, l, ours(l), nil)
		}, nil, false},
		{"it was recorded so long ago that its id is forgotten", func(t *testing.T, l *lease) {
			t.Helper()
			smuggle(t, l, ours(l), nil)
			m := encode(l.subject, ours(l))
			m.Header.Del(natsjs.ExpectedLastSeqHeader)
			m.Header.Set(natsjs.ExpectedLastSubjSeqHeader, "99") // the server never stores it
			natstest.Wait(t, func(ctx context.Context) error {
				if _, err := l.stream.publish(ctx, m); !errors.Is(err, errConflict) {
					return fmt.Errorf("the id is still known: %w", err)
				}
				return nil
			})
		}, nil, false},
		{"the next owner has recorded something", func(t *testing.T, l *lease) {
			t.Helper()
			e := ours(l)
			e.Epoch, e.ID = l.own.epoch+1, testID(99)
			smuggle(t, l, e, nil)
		}, journal.ErrStale, true},
		{"the last owner has recorded something late", func(t *testing.T, l *lease) {
			t.Helper()
			e := ours(l)
			e.Epoch, e.ID = l.own.epoch-1, testID(99)
			smuggle(t, l, e, nil)
		}, journal.ErrStale, false},
		{"the next owner has recorded the same, as it seems", func(t *testing.T, l *lease) {
			t.Helper()
			e := ours(l)
			e.Epoch = l.own.epoch + 1
			smuggle(t, l, e, nil)
		}, journal.ErrStale, true},
		{"more was recorded by the next owner", func(t *testing.T, l *lease) {
			t.Helper()
			e := ours(l)
			smuggle(t, l, e, nil)
			e.Seq, e.Epoch, e.ID = 4, l.own.epoch+1, testID(99)
			smuggle(t, l, e, nil)
		}, nil, false},
		{"what is recorded is damaged", func(t *testing.T, l *lease) {
			t.Helper()
			smuggle(t, l, ours(l), func(m *nats.Msg) { m.Data = []byte("something else") })
		}, journal.ErrDamaged, false},
	}
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL(), Shards: 2 * len(tests)})
	shard := 0
	for _, unsure := range []string{"while the owner knows the end", "while the owner is unsure of the end"} {
		for _, test := range tests {
			t.Run(unsure+"/"+test.name, func(t *testing.T) {
				release(t, mustLease(t, log, shard)) // so that there is an epoch before
				l := mustLease(t, log, shard)
				shard++
				if strings.Contains(test.name, "forgotten") {
					forgetIDs(t, l)
				}
				appendEntries(t, l, 1, 2)
				test.before(t, l)
				l.unsure.Store(strings.Contains(unsure, "unsure"))
				err := appendData(t.Context(), l, 3, testData(3))
				if !errors.Is(err, test.want) {
					t.Fatalf("Append = %v; want %v", err, test.want)
				}
				if isOpen(l.Lost()) == test.lost {
					t.Errorf("the lease is lost: %v; want %v", !test.lost, test.lost)
				}
				if err == nil && test.name != "more was recorded by the next owner" {
					wantLog(t, l, 1, 3)
				}
			})
		}
	}
}

// forgetIDs makes JetStream remember the ids of messages only for a moment.
func forgetIDs(t *testing.T, l *lease) {
	t.Helper()
	js, err := natsjs.New(l.own.backend.c.nc, natsjs.WithDefaultTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	info, err := l.stream.info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info.Config.Duplicates = 100 * time.Millisecond
	if _, err := js.UpdateStream(t.Context(), info.Config); err != nil {
		t.Fatal(err)
	}
}

func TestAStaleOwnerIsRefused(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{Replicas: 1, URL: nodes.URL(), Name: newName()}
	old := mustLease(t, openTest(t, cfg), 0)
	appendEntries(t, old, 1, 3)

	// Change the owner in the bucket directly, so that the old owner does not know it
	// when it appends.
	other := openTest(t, cfg)
	r, err := other.backend.shardRecord(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.backend.releaseShard(t.Context(), 0, r); err != nil {
		t.Fatal(err)
	}
	next := mustLease(t, other, 0)
	if next.Epoch() <= old.Epoch() {
		t.Errorf("epoch %d after %d", next.Epoch(), old.Epoch())
	}
	wantLog(t, next, 1, 3)
	testwait.Receive(t, "Lost() when another has taken over", old.Lost())
	wantErr(t, "Append by the old owner", tryAppend(t.Context(), old, 4), journal.ErrStale)
	appendEntries(t, next, 4, 5)
	wantLog(t, next, 1, 5)
}

func TestALateAppendOfTheOldOwnerMakesTheNextOneBeginAgain(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{Replicas: 1, URL: nodes.URL()})
	old := mustLease(t, log, 0)
	appendEntries(t, old, 1, 2)
	release(t, old)
	next := mustLease(t, log, 0)
	smuggle(t, old, journal.Entry{Seq: 3, Epoch: old.own.epoch, ID: testID(3), Data: testData(3)}, nil)
	_, err := next.Append(t.Context(), 2, testID(33), testData(33))
	wantErr(t, "the first Append of the next owner", err, journal.ErrStale)
	release(t, next)
	next = mustLease(t, log, 0)
	wantLog(t, next, 1, 3)
	appendEntries(t, next, 4, 4)
}

func TestAServerThatHangs(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1)
	// The lease must stay valid while the server hangs.
	l := mustLease(t, openTest(t, Config{URL: nodes.URL(), LeaseTime: 5 * time.Minute}), 0)
	appendEntries(t, l, 1, 1)
	nodes.Stop(0)
	wantPlain(t, "Append while the server hangs", tryAppend(t.Context(), l, 2))
	nodes.Continue(0)
	insist(t, l, 2)
	wantLog(t, l, 1, 2)
	if !isOpen(l.Lost()) {
		t.Error("the lease is lost")
	}
}

func TestAConnectionThatBreaksAgainAndAgain(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1, natstest.WithProxies())
	l := mustLease(t, openTest(t, Config{URL: nodes.URL(), LeaseTime: 5 * time.Minute}), 0)
	const cuts = 15
	cut := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for range cut {
			nodes.CutClients(0)
			nodes.HealClients(0)
		}
	})
	for n := range uint64(cuts) {
		cut <- struct{}{} // while the entry is appended
		insist(t, l, n+1)
	}
	close(cut)
	group.Wait()
	wantLog(t, l, 1, cuts)
}

func TestTheLeaderOfALogIsKilled(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 3)
	l := mustLease(t, openTest(t, Config{URL: nodes.URL()}), 0)
	appendEntries(t, l, 1, 20)
	leader := nodes.Leader(l.stream.name)
	nodes.Kill(leader)
	for n := uint64(21); n <= 40; n++ {
		insist(t, l, n)
	}
	nodes.Restart(leader)
	wantLog(t, l, 1, 40)
	if !isOpen(l.Lost()) {
		t.Errorf("the lease is lost: %v", context.Cause(l.own.life))
	}
}
