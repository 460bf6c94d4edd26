package fileaccess_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
)

func TestRotateKeepsTheNewestFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	for _, text := range []string{"1", "2", "3", "4"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := fileaccess.Rotate(path, 2); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"", "4", "3", ""} {
		got, _ := os.ReadFile(fileaccess.Rotated(path, i)) // a missing file has no text
		if string(got) != want {
			t.Errorf("after %d rotations: got %q, want %q", i, got, want)
		}
	}
}
