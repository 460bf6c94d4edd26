package plan

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "plan.svg"), filepath.Join(dir, "link.svg")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path, link} {
		if err := WriteFile(name, []byte("to "+name)); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != "to "+name {
			t.Errorf("WriteFile(%q) left %q", name, got)
		}
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if info, _ := os.Lstat(link); info.Mode().Type() != os.ModeSymlink {
		t.Errorf("WriteFile replaced the link: %v", info.Mode())
	}
	if err := WriteFile(path, nil); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o640 {
		t.Errorf("WriteFile changed the mode to %v", info.Mode())
	}
	wantFiles(t, dir, 2)
}

func TestWriteFileFailsCleanly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{dir, filepath.Join(dir, "none", "plan.svg")} {
		if err := WriteFile(name, []byte("x")); err == nil {
			t.Errorf("WriteFile(%q) = nil, want an error", name)
		}
	}
	wantFiles(t, dir, 0)
}

func wantFiles(t *testing.T, dir string, want int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != want {
		t.Errorf("%d files are left, want %d: %v %v", len(entries), want, entries, err)
	}
}
