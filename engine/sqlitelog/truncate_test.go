package sqlitelog

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

func writeNothing(io.Writer) error { return nil }

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestFilesStayFlatUnderAppendAndTruncate(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, OS)
	read := make(chan struct{}, 1)
	var group sync.WaitGroup
	defer group.Wait()
	defer close(read)
	group.Go(func() { // readers must not keep the write-ahead log from starting over
		for range read {
			first, _, err := l.Bounds(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for range l.Read(t.Context(), first) { // what it reads is not the point
			}
		}
	})
	const size, rounds, each = 100_000, 12, 12 // 14 MB in all, 2 MB at most at a time
	data := make([]byte, size)
	for n := range uint64(rounds * each) {
		if n%4 == 0 {
			select {
			case read <- struct{}{}: // while the next entries are appended
			default: // it is still reading
			}
		}
		mustAppend(t, l, n, data)
		if (n+1)%each == 0 {
			if err := l.Truncate(t.Context(), n-each/2); err != nil {
				t.Fatal(err)
			}
			testwait.Until(t, "a checkpoint of what was written", func() bool {
				return l.checkpoints.written.Load() < checkpointEvery
			})
		}
	}
	if got, limit := sizeOf(t, l.path), int64(8<<20); got > limit {
		t.Errorf("log.db has %d bytes; want at most %d", got, limit)
	}
	if got, limit := sizeOf(t, l.path+"-wal"), int64(10<<20); got > limit {
		t.Errorf("log.db-wal has %d bytes; want at most %d", got, limit)
	}
}

func TestTruncationGivesRoomBack(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, OS)
	data := make([]byte, 900_000)
	for n := range uint64(12) {
		mustAppend(t, l, n, data)
	}
	if err := l.Truncate(t.Context(), 13); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, 12, []byte("x"))
	if err := l.Release(); err != nil { // copies the write-ahead log
		t.Fatal(err)
	}
	if got, limit := sizeOf(t, filepath.Join(dir, "log.db")), int64(sparePages+100)*pageSize; got > limit {
		t.Errorf("log.db has %d bytes; want at most %d", got, limit)
	}
}

func TestTruncationRestoresDurability(t *testing.T) {
	for d, want := range map[Durability]int64{Full: 2, OS: 1} {
		l := openTest(t, t.TempDir(), d)
		mustAppend(t, l, 0, nil)
		if err := l.Truncate(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if err := l.Put(t.Context(), "blob", writeNothing); err != nil {
			t.Fatal(err)
		}
		if got, err := number(l.writer.conn, "PRAGMA synchronous"); got != want || err != nil {
			t.Errorf("%v: synchronous = %d, %v; want %d", d, got, err, want)
		}
	}
}
