package sqlitelog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/engine/internal/faultdisk"
	"github.com/tideover/tideover/engine/journal"
)

// failingDisk puts a simulated disk under the folder, which fails so many syncs as soon
// as the number is set.
func failingDisk(t *testing.T, dir string, drop bool, seed uint64) (*faultdisk.Disk, *atomic.Int64) {
	t.Helper()
	failures := new(atomic.Int64)
	disk, err := faultdisk.New(dir, faultdisk.Config{
		Seed: seed, Drop: drop,
		FailSync: func(string) bool { return failures.Load() > 0 && failures.Add(-1) >= 0 },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(disk.Close)
	return disk, failures
}

// leaseOf leases the log of a folder. It may fail to close it.
func leaseOf(t *testing.T, dir string) journal.Lease {
	t.Helper()
	l, err := newLog(t, dir).Lease(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// afterPowerCut returns the log as it is on the disk after a power failure.
func afterPowerCut(t *testing.T, disk *faultdisk.Disk) *lease {
	t.Helper()
	dir := t.TempDir()
	if err := faultdisk.Write(dir, disk.Cut()); err != nil {
		t.Fatal(err)
	}
	return openTest(t, dir, Full)
}

func TestAnEntryIsAcknowledgedOnlyIfItWasSynced(t *testing.T) {
	for seed := range uint64(20) {
		drop := seed%2 == 0
		t.Run(fmt.Sprintf("seed %d, drop %v", seed, drop), func(t *testing.T) {
			dir := t.TempDir()
			disk, failures := failingDisk(t, dir, drop, seed)
			l := openTest(t, dir, Full)
			mustAppend(t, l, 0, []byte("first"))
			failures.Store(int64(1 + seed%3))
			for failed := 0; ; failed++ {
				_, err := l.Append(t.Context(), 1, testID(2), []byte("second"))
				if err == nil {
					if failed == 0 {
						t.Fatal("no sync failed")
					}
					break
				}
				if failed > 5 {
					t.Fatal(err)
				}
			}
			mustAppend(t, l, 2, []byte("third"))
			if got := len(collect(t, afterPowerCut(t, disk))); got != 3 {
				t.Errorf("after a power cut there are %d entries of 3", got)
			}
		})
	}
}

// A truncation is not synced by itself. If the operating system drops it together with an entry that
// could not be synced, the write-ahead log on disk differs from the one that SQLite has in memory.
func TestAnUnsyncedTruncationThatIsDroppedEndsTheLease(t *testing.T) {
	dir := t.TempDir()
	disk, failures := failingDisk(t, dir, true, 3)
	l := leaseOf(t, dir)
	for n := range uint64(10) {
		mustAppend(t, l, n, []byte("entry"))
	}
	if err := l.Truncate(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	failures.Store(1)
	var err error
	for range 2 {
		if _, err = l.Append(t.Context(), 10, testID(11), []byte("last")); err == nil {
			t.Fatal("acknowledged")
		}
	}
	if !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), "start the process again") {
		t.Errorf("append = %v; want that the process must be started again", err)
	}
	if err := l.Release(); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("release = %v; want the same error: nothing must be copied to the database", err)
	}
	entries := collect(t, afterPowerCut(t, disk))
	if last := entries[len(entries)-1].Seq; last < 10 {
		t.Errorf("after a power cut the last entry is %d; 10 was acknowledged", last)
	}
}

func TestAFailedSyncIsRepairedByTheNextLease(t *testing.T) {
	dir := t.TempDir()
	disk, failures := failingDisk(t, dir, false, 1)
	l := leaseOf(t, dir)
	mustAppend(t, l, 0, []byte("first"))
	failures.Store(1 << 30)
	if _, err := l.Append(t.Context(), 1, testID(2), []byte("second")); err == nil {
		t.Fatal("acknowledged")
	}
	if err := l.Release(); err == nil {
		t.Fatal("released a log that could not be synced")
	}
	if err := leaseError(t, dir); err == nil {
		t.Fatal("leased a log that can't be synced")
	}
	failures.Store(0)
	l = leaseOf(t, dir)
	_, last, err := l.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, last, []byte("third"))
	if got, want := len(collect(t, afterPowerCut(t, disk))), int(last)+1; got != want {
		t.Errorf("after a power cut there are %d entries of %d", got, want)
	}
}

func TestALogThatIsGoneIsNotMadeAnew(t *testing.T) {
	for _, test := range []struct {
		name, word string
		harm       func(path string) error
	}{
		{"missing", "it is missing, and there was a log here: the folder has log.created", os.Remove},
		{"empty", "it is empty, and there was a log here: the folder has log.created", func(path string) error { return os.Truncate(path, 0) }},
		{"no tables", "it has no tables, and there was a log here", func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, emptyDatabase(t), 0o600))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filled(t, 3, 10)
			path := filepath.Join(dir, "log.db")
			if err := test.harm(path); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				err := leaseError(t, dir)
				if !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), test.word) || !strings.Contains(err.Error(), "restore a backup") {
					t.Errorf("lease = %v; want %q and what to do", err, test.word)
				}
			}
		})
	}
}

// emptyDatabase returns a database without tables.
func emptyDatabase(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	writeDatabase(t, dir, "CREATE TABLE t (x); DROP TABLE t;")
	data, err := os.ReadFile(filepath.Join(dir, "log.db"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
