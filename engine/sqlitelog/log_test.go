package sqlitelog

import (
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/journaltest"
)

func TestConformance(t *testing.T) {
	journaltest.Run(t, func(t *testing.T, dir string) journal.Log {
		t.Helper()
		log, err := Open(t.Context(), Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return log
	})
}

func TestReadsAndTruncationsGoOnAfterTheirFirstPart(t *testing.T) {
	const entries, below = chunkEntries + 20, stepEntries + 20
	l := openTest(t, t.TempDir(), OS)
	for n := range uint64(entries) {
		mustAppend(t, l, n, []byte("text"))
	}
	wantEntries := func(first uint64) {
		t.Helper()
		next := first
		for _, e := range collect(t, l) {
			if e.Seq != next || e.ID != testID(next) || string(e.Data) != "text" {
				t.Fatalf("entry %d where %d is next, or its contents differ", e.Seq, next)
			}
			next++
		}
		if next != entries+1 {
			t.Errorf("reading ends at %d; want %d", next-1, entries)
		}
	}
	wantEntries(1)
	if err := l.Truncate(t.Context(), below); err != nil {
		t.Fatal(err)
	}
	wantEntries(below)
}
