package journaltest

import (
	"context"
	"fmt"
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

var truncateTests = []test{
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
}

func truncate(t *testing.T, l journal.Lease, below uint64) {
	t.Helper()
	wantNoError(t, fmt.Sprintf("Truncate(%d)", below), l.Truncate(t.Context(), below))
}
