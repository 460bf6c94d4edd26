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
			l := leaseOf(t, log)
			if l.Epoch() <= latest {
				t.Fatalf("Epoch() = %d after %d", l.Epoch(), latest)
			}
			latest = l.Epoch()
			release(t, l)
		}
	}},
	{"a second lease is refused while the first is held", func(t *testing.T, f *fixture) {
		log := f.log(t)
		l := leaseOf(t, log)
		_, err := log.Lease(t.Context(), 0)
		wantError(t, "a second Lease of the same log", err, journal.ErrLocked)
		other := f.log(t)
		_, err = other.Lease(t.Context(), 0)
		wantError(t, "Lease by another process", err, journal.ErrLocked)
		appendN(t, l, 0, 3)
		release(t, l)
		next := leaseOf(t, other)
		wantEntries(t, next, 1, 3)
	}},
	{"lost is open while the lease is held and closed by its release", func(t *testing.T, f *fixture) {
		l := f.lease(t)
		appendN(t, l, 0, 1)
		select {
		case <-l.Lost():
			t.Fatal("Lost() is closed before the release")
		default:
		}
		release(t, l)
		<-l.Lost()
	}},
	{"a release can be repeated", func(t *testing.T, f *fixture) {
		l := f.lease(t)
		release(t, l)
		release(t, l)
		next := f.lease(t)
		release(t, l)
		appendN(t, next, 0, 1)
	}},
	{"closing the log gives up its lease", func(t *testing.T, f *fixture) {
		log := f.open(t, f.dir)
		l := leaseOf(t, log)
		appendN(t, l, 0, 2)
		if err := log.Close(); err != nil {
			t.Fatalf("Close() = %v", err)
		}
		<-l.Lost()
		_, err := l.Append(t.Context(), 2, entryID(3), entryData(3))
		wantError(t, "Append after Close", err, journal.ErrStale)
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
		_, err := old.Append(t.Context(), 2, entryID(3), entryData(3))
		wantError(t, "Append under an old lease", err, journal.ErrStale)
		wantError(t, "Truncate under an old lease", old.Truncate(t.Context(), 2), journal.ErrStale)
		wantError(t, "Put under an old lease", old.Put(t.Context(), "kept", writeText("new")), journal.ErrStale)
		wantError(t, "Delete under an old lease", old.Delete(t.Context(), "kept"), journal.ErrStale)
		wantBounds(t, l, 1, 2)
		wantBlob(t, l, "kept", "old")
		appendN(t, l, 2, 1)
		_, err = old.Append(t.Context(), 3, entryID(4), entryData(4))
		wantError(t, "Append under an old lease", err, journal.ErrStale)
		wantEntries(t, l, 1, 3)
	}},
	{"a canceled lease is not taken", func(t *testing.T, f *fixture) {
		log := f.log(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := log.Lease(ctx, 0)
		wantError(t, "Lease with a canceled context", err, context.Canceled)
		leaseOf(t, log)
	}},
	{"a lease outlives the context it was taken with", func(t *testing.T, f *fixture) {
		log := f.log(t)
		ctx, cancel := context.WithCancel(t.Context())
		l, err := log.Lease(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		appendN(t, l, 0, 3)
		wantEntries(t, l, 1, 3)
	}},
}
