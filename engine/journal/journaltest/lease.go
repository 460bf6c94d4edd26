package journaltest

import (
	"context"
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

var leaseTests = []test{
	{"epochs start at 1 or above and grow, over restarts too", func(t *testing.T, f *fixture) {
		log := f.log(t)
		var latest uint64
		for i := range 6 {
			if i == 3 {
				log = f.log(t)
			}
			l := leaseShard(t, log, 0)
			wantLaterEpoch(t, l, latest)
			latest = l.Epoch()
			release(t, l)
		}
	}},
	{"a second lease is refused while the first is held", func(t *testing.T, f *fixture) {
		log := f.log(t)
		l := leaseShard(t, log, 0)
		_, err := log.Lease(t.Context(), 0)
		wantError(t, "a second Lease of the same log", err, journal.ErrLocked)
		other := f.log(t)
		_, err = other.Lease(t.Context(), 0)
		wantError(t, "Lease by another process", err, journal.ErrLocked)
		appendN(t, l, 0, 3)
		release(t, l)
		next := leaseShard(t, other, 0)
		wantEntries(t, next, 1, 3)
	}},
	{"lost is open while the lease is held and closed by its release", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 1)
		if isClosed(l.Lost()) {
			t.Fatal("Lost() is closed before the release")
		}
		release(t, l)
		<-l.Lost()
	})},
	{"a release can be repeated", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		release(t, l)
		release(t, l)
		next := f.lease(t)
		release(t, l)
		appendN(t, next, 0, 1)
	})},
	{"closing the log gives up its lease", func(t *testing.T, f *fixture) {
		log := f.open(t, f.dir)
		l := leaseShard(t, log, 0)
		appendN(t, l, 0, 2)
		wantNoError(t, "Close()", log.Close())
		<-l.Lost()
		wantStale(t, "after Close", l, 2)
		if _, err := log.Lease(t.Context(), 0); err == nil {
			t.Error("Lease of a closed log succeeds")
		}
		wantEntries(t, f.lease(t), 1, 2)
	}},
	{"a lease that is over changes nothing", func(t *testing.T, f *fixture) {
		old := f.lease(t)
		appendN(t, old, 0, 2)
		put(t, old, "kept", "old")
		l := f.reopen(t, old)
		wantStale(t, "under an old lease", old, 2)
		wantError(t, "Truncate under an old lease", old.Truncate(t.Context(), 2), journal.ErrStale)
		wantError(t, "Put under an old lease", old.Put(t.Context(), "kept", writeText("new")), journal.ErrStale)
		wantError(t, "Delete under an old lease", old.Delete(t.Context(), "kept"), journal.ErrStale)
		wantBounds(t, l, 1, 2)
		wantBlob(t, l, "kept", "old")
		appendN(t, l, 2, 1)
		wantStale(t, "under an old lease", old, 3)
		wantEntries(t, l, 1, 3)
	}},
	{"a canceled lease is not taken", func(t *testing.T, f *fixture) {
		log := f.log(t)
		_, err := log.Lease(canceled(t), 0)
		wantError(t, "Lease with a canceled context", err, context.Canceled)
		leaseShard(t, log, 0)
	}},
	{"a lease outlives the context it was taken with", func(t *testing.T, f *fixture) {
		log := f.log(t)
		ctx, cancel := context.WithCancel(t.Context())
		l, err := log.Lease(ctx, 0)
		wantNoError(t, "Lease", err)
		cancel()
		appendN(t, l, 0, 3)
		wantEntries(t, l, 1, 3)
	}},
}
