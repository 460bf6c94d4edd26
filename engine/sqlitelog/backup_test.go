package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func TestABackupUnderLoadIsALog(t *testing.T) {
	l := openTest(t, t.TempDir(), OS)
	for n := range uint64(80) {
		mustAppend(t, l, n, make([]byte, 20_000))
	}
	if err := l.Truncate(t.Context(), 51); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { appendAndSnapshot(t, l, 80, done) })
	for i := range 2 {
		before := l.last.Load()
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := l.Backup(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		wantPrefix(t, dir, l, before)
	}
	close(done)
	group.Wait()
}

// appendAndSnapshot appends until done. Its blob says which entry was the last.
func appendAndSnapshot(t *testing.T, l *lease, last uint64, done <-chan struct{}) {
	t.Helper()
	for {
		select {
		case <-done:
			return
		default:
		}
		seq, err := l.Append(t.Context(), last, testID(last+1), make([]byte, 5000))
		if err == nil && seq%20 == 0 {
			err = l.Put(t.Context(), "snapshot", func(w io.Writer) error {
				_, err := fmt.Fprint(w, seq)
				return err
			})
		}
		if err != nil {
			t.Error(err)
			return
		}
		last = seq
	}
}

// wantPrefix checks that a folder has the entries of l up to some later than
// last, and no blob that is ahead of them.
func wantPrefix(t *testing.T, dir string, l *lease, last uint64) {
	t.Helper()
	copied := openTest(t, dir, Full)
	if copied.Epoch() <= l.Epoch() {
		t.Errorf("the copy has epoch %d; want more than %d", copied.Epoch(), l.Epoch())
	}
	got, want := collect(t, copied), collect(t, l)
	if len(got) == 0 || got[len(got)-1].Seq < last {
		t.Fatalf("the copy has %d entries and ends before %d", len(got), last)
	}
	if !reflect.DeepEqual(got, want[:len(got)]) {
		t.Error("the copy has other entries than the log")
	}
	if r, err := copied.Get(t.Context(), "snapshot"); err == nil {
		defer r.Close()
		var seq uint64
		if _, err := fmt.Fscan(r, &seq); err != nil || seq > got[len(got)-1].Seq {
			t.Errorf("the snapshot is of %d, %v; the last entry is %d", seq, err, got[len(got)-1].Seq)
		}
	}
	mustAppend(t, copied, got[len(got)-1].Seq, []byte("goes on"))
	if err := copied.Release(); err != nil {
		t.Error(err)
	}
}

func TestABackupNeedsAnEmptyFolder(t *testing.T) {
	l := openTest(t, filled(t, 5, 100), Full)
	target := t.TempDir() // empty is fine
	if err := l.Backup(t.Context(), target); err != nil {
		t.Fatalf("backup to an empty folder: %v", err)
	}
	err := l.Backup(t.Context(), target)
	if err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("backup to the same folder = %v; want that it is not empty", err)
	}
	if n := len(collect(t, openTest(t, target, Full))); n != 5 {
		t.Errorf("the first copy has %d entries; want 5", n)
	}
}

func TestABackupThatFailsLeavesNothing(t *testing.T) {
	l := openTest(t, filled(t, 5, 100), Full)
	target := filepath.Join(t.TempDir(), "copy")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Backup(ctx, target); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled backup = %v; want %v", err, context.Canceled)
	}
	// A blob that can't be copied, after the copy has begun.
	if err := l.Put(t.Context(), "gone", func(io.Writer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(l.dir, "blobs", "gone")); err != nil {
		t.Fatal(err)
	}
	if err := l.Backup(t.Context(), target); err == nil {
		t.Error("backup with a blob that can't be read succeeds")
	}
	if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", target, err)
	}
	if _, _, err := l.Bounds(t.Context()); err != nil {
		t.Error(err)
	}
}
