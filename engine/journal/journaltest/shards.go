package journaltest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

var shardTests = group[clusterTest]{"shards", []clusterTest{
	{"a member leases several shards, and each is a log of its own", 1, func(t *testing.T, c *cluster, members []Process) {
		m := members[0]
		leases := takeAll(t, m)
		for n, l := range leases {
			wantBounds(t, l, 1, 0) // nothing came from the others
			appendN(t, l, 0, 1+n)
			put(t, l, "mine", fmt.Sprint(n))
		}
		for n, l := range leases {
			wantLog(t, l, 1, uint64(1+n))
			wantBlob(t, l, "mine", fmt.Sprint(n))
			wantNames(t, l, "mine")
		}
		truncate(t, leases[3], 3)
		wantNoError(t, "Delete", leases[0].Delete(t.Context(), "mine"))
		wantBounds(t, leases[2], 1, 3)
		wantBounds(t, leases[3], 3, 4)
		wantBlob(t, leases[1], "mine", "1")
	}},
	{"a shard has one owner", 2, func(t *testing.T, c *cluster, members []Process) {
		l := take(t, members[0], 0)
		for _, m := range members {
			_, err := m.Lease(testwait.Context(t), 0)
			wantError(t, "Lease of a shard that has an owner", err, journal.ErrLocked)
		}
		take(t, members[1], 1)
		appendN(t, l, last(t, l), 1)
	}},
	{"the next owner, wherever it is, finds what the one before has left", 2, func(t *testing.T, c *cluster, members []Process) {
		l := take(t, members[0], 1)
		put(t, l, "left", "behind")
		for i := range 2 {
			before := last(t, l)
			appendN(t, l, before, 2)
			release(t, l)
			old := l
			l = take(t, members[(i+1)%2], 1)
			wantLaterEpoch(t, l, old.Epoch())
			wantLog(t, l, 1, before+2)
			wantBlob(t, l, "left", "behind")
			wantStale(t, "under an old lease", old, before+2)
		}
	}},
	{"what one shard goes through leaves the others' leases alone", 2, func(t *testing.T, c *cluster, members []Process) {
		kept := take(t, members[0], 2)
		for range 3 {
			release(t, take(t, members[0], 3))
			release(t, take(t, members[1], 3))
		}
		appendN(t, kept, last(t, kept), 2)
		if isClosed(kept.Lost()) {
			t.Error("the lease of another shard is lost")
		}
	}},
	{"a member that closes gives up its shards", 2, func(t *testing.T, c *cluster, members []Process) {
		leases := takeAll(t, members[0])
		end := last(t, leases[0])
		appendN(t, leases[0], end, 2)
		c.close(t, members[0])
		for n, l := range leases {
			testwait.Receive(t, "Lost() after Close", l.Lost())
			wantStale(t, "after Close", l, end)
			if _, err := members[0].Lease(t.Context(), n); err == nil {
				t.Errorf("Lease(%d) of a closed member succeeds", n)
			}
			next := take(t, members[1], n)
			wantLaterEpoch(t, next, l.Epoch())
			if n == 0 {
				wantEntries(t, next, 1, end+2)
			}
		}
		wantAgreement(t, members[1])
	}},
	{"there are no other shards", 1, func(t *testing.T, c *cluster, members []Process) {
		m := members[0]
		for _, n := range []int{-1, clusterShards, 1 << 20} {
			if _, err := m.Lease(testwait.Context(t), n); err == nil || errors.Is(err, journal.ErrLocked) {
				t.Errorf("Lease(%d) = %v; want an error that it does not exist", n, err)
			}
			if _, err := m.Call(testwait.Context(t), n, nil); err == nil {
				t.Errorf("Call(%d) succeeds", n)
			}
		}
	}},
	{"members take and release shards at once, and each has one owner", 3, func(t *testing.T, c *cluster, members []Process) {
		const rounds = 4
		l := take(t, members[0], 3)
		start := last(t, l)
		release(t, l)
		done := make(chan error, len(members))
		for _, m := range members {
			go func() { done <- contend(t, m, 3, rounds) }()
		}
		for range members {
			if err := testwait.Receive(t, "contending for a shard", done); err != nil {
				t.Error(err)
			}
		}
		end, want := last(t, take(t, members[0], 3)), start+uint64(rounds*len(members))
		if end != want {
			t.Errorf("the last entry is %d; want %d", end, want)
		}
	}},
}}

// contend becomes the owner of the shard rounds times, and appends an entry each time.
func contend(t *testing.T, m journal.Cluster, shard, rounds int) error {
	ctx := testwait.Context(t)
	for done := 0; done < rounds && ctx.Err() == nil; {
		l, err := m.Lease(ctx, shard)
		if errors.Is(err, journal.ErrLocked) {
			// real clock: a pause between two polls
			time.Sleep(pollInterval) //nolint:forbidigo // there is no event to wait for
			continue
		}
		if err != nil {
			return err
		}
		_, end, err := l.Bounds(ctx)
		if err == nil {
			_, err = appendEntry(ctx, l, end+1)
		}
		if released := l.Release(); !timedOut(released) {
			err = errors.Join(err, released)
		}
		if err != nil {
			return err
		}
		done++
	}
	return ctx.Err()
}
