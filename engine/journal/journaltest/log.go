package journaltest

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

var logTests = group[test]{"log", []test{
	{"a new log has the bounds 1 and 0", func(t *testing.T, f *fixture) {
		wantBounds(t, f.lease(t), 1, 0)
	}},
	{"entries are read in the order of their appends, after a restart too", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 20)
		wantLog(t, l, 1, 20)
		l = f.reopen(t, l)
		wantLog(t, l, 1, 20)
		appendN(t, l, 20, 5)
		wantEntries(t, l, 1, 25)
	})},
	{"an entry has the epoch of its lease", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 1)
		epochs := []uint64{l.Epoch()}
		l = f.reopen(t, l)
		appendN(t, l, 1, 1)
		epochs = append(epochs, l.Epoch())
		for e, err := range l.Read(t.Context(), 1) {
			if err != nil || e.Epoch != epochs[e.Seq-1] {
				t.Errorf("entry %d has epoch %d, %v; want %d", e.Seq, e.Epoch, err, epochs[e.Seq-1])
			}
		}
	})},
	{"appending after anything but the last entry is stale", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 3)
		for _, expected := range []uint64{0, 1, 2, 4, 1000} {
			_, err := l.Append(t.Context(), expected, entryID(99), []byte("x"))
			wantError(t, "Append after the wrong entry", err, journal.ErrStale)
		}
		wantLog(t, l, 1, 3)
	})},
	{"an append that is repeated is recorded once", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 3)
		for range 3 {
			seq, err := l.Append(t.Context(), 2, entryID(3), entryData(3))
			if err != nil || seq != 3 {
				t.Fatalf("repeated Append(2) = %d, %v; want 3", seq, err)
			}
		}
		wantBounds(t, l, 1, 3)
		appendN(t, l, 3, 1)
		wantEntries(t, l, 1, 4)
	})},
	{"the next owner does not repeat what it has not read", func(t *testing.T, f *fixture) {
		// A repeat is a success for the owner that appended first. The next owner has
		// read the log, so an append behind its end is a mistake.
		l := f.lease(t)
		appendN(t, l, 0, 3)
		l = f.reopen(t, l)
		wantStale(t, "repeated under the next lease", l, 2)
		wantBounds(t, l, 1, 3)
	}},
	{"the largest entry fits, an empty one too, and no larger one", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		data := bytes.Repeat([]byte("0123456789"), journal.MaxEntry/10+1)
		sizes := []int{journal.MaxEntry, 0}
		for i, size := range sizes {
			_, err := l.Append(t.Context(), uint64(i), entryID(uint64(i)), data[:size])
			wantNoError(t, fmt.Sprintf("Append of %d bytes", size), err)
		}
		_, err := l.Append(t.Context(), 2, entryID(2), data[:journal.MaxEntry+1])
		wantError(t, "Append of MaxEntry+1 bytes", err, journal.ErrTooLarge)
		wantBounds(t, l, 1, 2)
		for e, err := range l.Read(t.Context(), 1) {
			if err != nil || !bytes.Equal(e.Data, data[:sizes[e.Seq-1]]) {
				t.Errorf("entry %d has %d bytes, %v; want the %d that were appended", e.Seq, len(e.Data), err, sizes[e.Seq-1])
			}
		}
	})},
	{"an append does not keep the caller's data", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		data := entryData(1)
		_, err := l.Append(t.Context(), 0, entryID(1), data)
		wantNoError(t, "Append", err)
		clear(data)
		wantEntries(t, l, 1, 1)
	})},
	{"a canceled append records nothing or can be repeated", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		_, err := l.Append(canceled(t), 0, entryID(1), entryData(1))
		wantError(t, "Append with a canceled context", err, context.Canceled)
		appendN(t, l, 0, 2)
		wantEntries(t, l, 1, 2)
	})},
	{"reading starts in the middle", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 10)
		wantEntries(t, l, 7, 10)
		wantEntries(t, l, 10, 10)
	})},
	{"reading an empty log, or behind the end, yields nothing", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		wantEntries(t, l, 1, 0)
		appendN(t, l, 0, 2)
		wantEntries(t, l, 3, 2)
	})},
	{"reading ends at the last entry of the time of the call", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 3)
		entries := l.Read(t.Context(), 1)
		appendN(t, l, 3, 3)
		var last uint64
		for e, err := range entries {
			wantNoError(t, "Read", err)
			last = e.Seq
		}
		if last != 3 {
			t.Errorf("Read(1), called before entry 4 was appended, ends at %d; want 3", last)
		}
	})},
	{"reading can be stopped, and done again", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 5)
		for range 20 {
			for range l.Read(t.Context(), 1) {
				break
			}
		}
		wantEntries(t, l, 1, 5)
	})},
	{"appending while reading is possible", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 3)
		for e, err := range l.Read(t.Context(), 1) {
			wantNoError(t, "Read", err)
			appendN(t, l, 2+e.Seq, 1)
		}
		wantEntries(t, l, 1, 6)
	})},
	{"a canceled read ends with an error", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 3)
		_, err := readAll(canceled(t), l, 1)
		wantError(t, "Read with a canceled context", err, context.Canceled)
	})},
	{"truncation removes what is below, and the log goes on", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 10)
		truncate(t, l, 4)
		wantLog(t, l, 4, 10)
		appendN(t, l, 10, 2)
		l = f.reopen(t, l)
		wantLog(t, l, 4, 12)
	})},
	{"reading what was cut off is an error", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 10)
		truncate(t, l, 4)
		if next, err := readAll(t.Context(), l, 3); err == nil || next != 3 {
			t.Errorf("Read(3) ends at %d, %v; want an error at once", next-1, err)
		}
	})},
	{"truncation of everything keeps the place, after a restart too", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 10)
		truncate(t, l, 11)
		wantLog(t, l, 11, 10)
		l = f.reopen(t, l)
		wantBounds(t, l, 11, 10)
		appendN(t, l, 10, 2)
		wantLog(t, l, 11, 12)
	})},
	{"truncation beyond the end removes everything and no more", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 3)
		truncate(t, l, 100)
		wantBounds(t, l, 4, 3)
		appendN(t, l, 3, 1)
	})},
	{"truncation of what is already gone does nothing", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		truncate(t, l, 1)
		wantBounds(t, l, 1, 0)
		appendN(t, l, 0, 5)
		truncate(t, l, 4)
		truncate(t, l, 4)
		truncate(t, l, 2)
		truncate(t, l, 0)
		wantBounds(t, l, 4, 5)
	})},
	{"a repeat of an append that was cut off is stale", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 3)
		truncate(t, l, 4)
		wantStale(t, "of what was cut off", l, 1)
	})},
	{"truncation of hundreds can be canceled and repeated", withLease(func(t *testing.T, f *fixture, l journal.Lease) {
		appendN(t, l, 0, 150)
		wantError(t, "Truncate with a canceled context", l.Truncate(canceled(t), 130), context.Canceled)
		first, last, err := l.Bounds(t.Context())
		if err != nil || last != 150 {
			t.Fatalf("Bounds() = %d, %d, %v; want the last to be 150", first, last, err)
		}
		wantEntries(t, l, first, 150)
		truncate(t, l, 130)
		wantLog(t, l, 130, 150)
	})},
}}

func truncate(t *testing.T, l journal.Lease, below uint64) {
	t.Helper()
	wantNoError(t, fmt.Sprintf("Truncate(%d)", below), l.Truncate(t.Context(), below))
}

var leaseTests = group[test]{"lease", []test{
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
}}
