package sqlitelog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

func TestTheLockSaysWhoHasIt(t *testing.T) {
	dir := t.TempDir()
	cmd := childCommand(t, "writer", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	err = leaseError(t, dir)
	if !errors.Is(err, journal.ErrLocked) {
		t.Fatalf("lease = %v; want %v", err, journal.ErrLocked)
	}
	for _, want := range []string{fmt.Sprintf("pid %d", cmd.Process.Pid), filepath.Join(dir, "lock"), "stop it"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestAStolenLockEndsTheLease(t *testing.T) {
	write := func(w io.Writer) error { return nil }
	for name, try := range map[string]func(l *lease) error{
		"append": func(l *lease) error {
			_, err := l.Append(t.Context(), 2, testID(3), nil)
			return err
		},
		"truncate": func(l *lease) error { return l.Truncate(t.Context(), 2) },
		"put":      func(l *lease) error { return l.Put(t.Context(), "a", write) },
		"delete":   func(l *lease) error { return l.Delete(t.Context(), "a") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			old := openTest(t, dir, Full)
			mustAppend(t, old, 0, []byte("1"))
			mustAppend(t, old, 1, []byte("2"))
			if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
				t.Fatal(err)
			}
			thief := openTest(t, dir, Full)
			if err := try(old); !errors.Is(err, journal.ErrStale) {
				t.Errorf("%s by the old owner = %v; want %v", name, err, journal.ErrStale)
			}
			<-old.Lost()
			if first, last, err := thief.Bounds(t.Context()); first != 1 || last != 2 || err != nil {
				t.Errorf("bounds = %d, %d, %v; want 1, 2", first, last, err)
			}
			mustAppend(t, thief, 2, []byte("3"))
			if n := len(collect(t, thief)); n != 3 {
				t.Errorf("%d entries; want 3", n)
			}
		})
	}
}
