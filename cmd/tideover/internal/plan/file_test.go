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

func TestWriteFileKeepsALinkToAFileThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, target := range map[string]string{"a.svg": "b.svg", "b.svg": filepath.Join(dir, "plan.svg")} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteFile(filepath.Join(dir, "a.svg"), []byte("drawing")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "plan.svg")); string(got) != "drawing" {
		t.Errorf("the file has %q, %v", got, err)
	}
	if _, err := os.Readlink(filepath.Join(dir, "a.svg")); err != nil {
		t.Errorf("the link was replaced: %v", err)
	}
	wantFiles(t, dir, 3)
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
