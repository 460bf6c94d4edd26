package process

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A cgroup stays if the process that created it still runs: it may not have started its command yet.
func TestCgroupsOfProcessesThatRunAreLeft(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	for _, name := range []string{"tideover-1234-567", "tideover-99-1", "tideover-4711", "other-1234-1"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	removeEmptyCgroups(parent, func(pid int) bool { return pid == 1234 })
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"other-1234-1", "tideover-1234-567"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}
