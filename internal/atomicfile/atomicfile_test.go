package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tideover/tideover/internal/atomicfile"
)

func TestWriteReplacesAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	for _, want := range []string{"one", "", "two"} {
		if err := atomicfile.Write(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("ReadFile = %q, %v, want %q", got, err, want)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("ReadDir = %v, %v, want one file", files, err)
	}
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "folder")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, []byte("x")); err == nil {
		t.Error("Write replaced a folder")
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("ReadDir = %v, %v, want only the folder", files, err)
	}
	if err := atomicfile.Write(filepath.Join(dir, "none", "x"), nil); err == nil {
		t.Error("Write created a folder")
	}
}
