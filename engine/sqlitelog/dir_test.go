package sqlitelog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/tideover/tideover/engine/internal/disk"
)

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // it has no such modes
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	l := openTest(t, dir, Full)
	mustAppend(t, l, 0, []byte("x"))
	if err := l.Put(t.Context(), "blob", writeNothing); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := l.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{filepath.Dir(dir), copied} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			want := fs.FileMode(0o600)
			if e.IsDir() {
				want = 0o700
			}
			if err == nil && info.Mode().Perm() != want {
				t.Errorf("%s has mode %v; want %v", path, info.Mode().Perm(), want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestAFileInPlaceOfTheFolderIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Dir: path}); err == nil {
		t.Errorf("Open(%s) succeeds on a file", path)
	}
}

func TestConfigIsValidated(t *testing.T) {
	_, err := Open(t.Context(), Config{Durability: 9})
	if err == nil {
		t.Fatal("Open succeeds")
	}
	const want = "open log: dir: empty\ndurability: Durability(9) is neither full nor os"
	if err.Error() != want {
		t.Errorf("Open = %q; want %q", err, want)
	}
	if _, err := newLog(t, t.TempDir()).Lease(t.Context(), 1); err == nil {
		t.Error("Lease(1) succeeds; want an error, there is shard 0 only")
	}
}

func TestUnfinishedBlobsAreRemoved(t *testing.T) {
	dir := filled(t, 1, 1)
	left := filepath.Join(dir, "blobs", disk.TempPrefix+"123")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := openTest(t, dir, Full)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", left, err)
	}
	blobs, err := l.Blobs(t.Context())
	if err != nil || len(blobs) != 1 || blobs[0].Name != "blob" {
		t.Errorf("Blobs() = %v, %v; want blob", blobs, err)
	}
}
