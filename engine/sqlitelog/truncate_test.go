package sqlitelog

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func writeNothing(io.Writer) error { return nil }

func fileSize(t *testing.T, path string) int64 {
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
	done := make(chan struct{})
	var group sync.WaitGroup
	defer group.Wait()
	defer close(done)
	group.Go(func() { // readers must not keep the write-ahead log from starting over
		for {
			select {
			case <-done:
				return
			default:
			}
			first, _, err := l.Bounds(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for range l.Read(t.Context(), first) { // what it reads is not the point
			}
		}
	})
	const size, rounds, each = 20_000, 12, 60 // 14 MB in all, 2 MB at most at a time
	for n := range uint64(rounds * each) {
		mustAppend(t, l, n, make([]byte, size))
		if (n+1)%each == 0 {
			if err := l.Truncate(t.Context(), n-each/2); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, limit := fileSize(t, l.path), int64(8<<20); got > limit {
		t.Errorf("log.db has %d bytes; want at most %d", got, limit)
	}
	if got, limit := fileSize(t, l.path+"-wal"), int64(10<<20); got > limit {
		t.Errorf("log.db-wal has %d bytes; want at most %d", got, limit)
	}
}

func TestTruncationGivesRoomBack(t *testing.T) {
	dir := t.TempDir()
	l := openTest(t, dir, OS)
	for n := range uint64(14) {
		mustAppend(t, l, n, make([]byte, 900_000))
	}
	if err := l.Truncate(t.Context(), 15); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, 14, []byte("x"))
	if err := l.Release(); err != nil { // copies the write-ahead log
		t.Fatal(err)
	}
	if got, limit := fileSize(t, filepath.Join(dir, "log.db")), int64(sparePages+100)*pageSize; got > limit {
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
