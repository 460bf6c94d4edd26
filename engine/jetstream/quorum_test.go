package jetstream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

func TestWithoutQuorumThereAreClearErrorsAndThenItGoesOn(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 3)
	cfg := Config{URL: nodes.URL(), Name: newName(), Shards: 2}
	log, other := openTest(t, cfg), openTest(t, cfg)
	l := mustLease(t, log, 0)
	appendEntries(t, l, 1, 5)
	nodes.Kill(1)
	nodes.Kill(2)
	for call, test := range map[string]struct {
		do   func(context.Context) error
		want string
	}{
		"Append": {func(ctx context.Context) error { return tryAppend(ctx, l, 6) }, "no quorum: stream " + l.stream.name},
		"Lease":  {func(ctx context.Context) error { _, err := other.Lease(ctx, 1); return err }, "no quorum"},
		"Settle": {func(ctx context.Context) error { _, err := other.Settle(ctx, "x", "y"); return err }, "no quorum"},
	} {
		natstest.Wait(t, func(ctx context.Context) error { // until the client has left the killed servers
			// real clock: without a quorum nothing succeeds
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			err := test.do(ctx)
			if err != nil && !strings.Contains(err.Error(), test.want) {
				return err
			}
			wantPlain(t, call+" without quorum", err)
			return nil
		})
	}
	if !isOpen(l.Lost()) {
		t.Errorf("the lease is lost: %v", context.Cause(l.own.life))
	}

	nodes.Restart(1)
	nodes.Restart(2)
	insist(t, l, 6)
	appendEntries(t, l, 7, 10)
	wantLog(t, l, 1, 10)
	if members := other.Members(); len(members) != 2 {
		t.Errorf("Members() = %q; want both: no heartbeat could be stored", members)
	}
}

func TestLeasesEndWhenTheQuorumIsAwayTooLong(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 3)
	cfg := Config{URL: nodes.URL(), Name: newName()}
	log, other := openTest(t, cfg), openTest(t, cfg)
	l := mustLease(t, log, 0)
	appendEntries(t, l, 1, 2)
	ids := []string{log.Member(), other.Member()}
	for i := range 3 {
		nodes.Kill(i)
	}
	awaitSilent(t, log, l, log.backend.timing.expelAt)
	wantErr(t, "Append after that", tryAppend(t.Context(), l, 3), journal.ErrStale)
	var err error
	testwait.Until(t, "the connection is lost", func() bool { // and not only with a call under way
		_, err = log.Call(t.Context(), 0, nil)
		return errors.Is(err, journal.ErrNobody)
	})
	wantErr(t, "Call without servers", err, journal.ErrNobody, "not connected to NATS")
	for i := range 3 {
		nodes.Restart(i)
	}
	next := takeOver(t, log, 0)
	if next.Epoch() <= l.Epoch() {
		t.Errorf("epoch %d after %d", next.Epoch(), l.Epoch())
	}
	awaitBeats(t, log)
	awaitBeats(t, other)
	if now := []string{log.Member(), other.Member()}; !slices.Equal(now, ids) {
		t.Errorf("the members are %q, before %q; no heartbeat could be stored", now, ids)
	}
	next = mustLeaseAgain(t, log, next)
	appendEntries(t, next, 3, 4)
	wantLog(t, next, 1, 4)
}

func TestANodeThatIsCutOffDecidesNothing(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 3, natstest.WithProxies())
	cfg := Config{URL: nodes.URL(), Name: newName(), Shards: 1}
	log := openTest(t, cfg)
	l := mustLease(t, log, 0)
	appendEntries(t, l, 1, 5)
	leader := nodes.Leader(l.stream.name)

	// A member that reaches only the node that is cut off, which believes for a
	// while that it leads.
	alone := cfg
	alone.URL = nodes.NodeURL(leader)
	lonely := openTest(t, alone)
	nodes.Cut(leader)
	nodes.HealClients(leader)
	for n := uint64(6); n <= 15; n++ {
		insist(t, l, n)
	}
	// real clock: the node has no quorum, so the lease is never taken
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := lonely.Lease(ctx, 0); err == nil {
		t.Error("a member behind a node that is cut off leases a shard")
	}
	nodes.Heal(leader)
	nodes.WaitReady()
	natstest.Wait(t, func(context.Context) error {
		if members := log.Members(); len(members) != 2 {
			return errors.New("one is missing")
		}
		return nil
	})
	wantLog(t, l, 1, 15)
}
