package testfile

import (
	"os"
	"path/filepath"
	"testing"
)

// failures records whether a test would have failed.
type failures struct {
	testing.TB
	failed bool
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.failed = true }

func TestGolden(t *testing.T) { // not parallel: it sets the flag
	path := filepath.Join(t.TempDir(), "testdata", "out.txt")
	check := func(got string) bool {
		f := &failures{TB: t}
		Golden(f, path, got)
		return !f.failed
	}
	if check("one") {
		t.Error("a file that does not exist is accepted")
	}
	*update = true
	ok := check("one")
	*update = false
	if !ok || !check("one") || check("two") {
		t.Error("the file that was written does not decide")
	}
	Golden(t, path, []byte("one"))
}

func TestShortDir(t *testing.T) {
	t.Parallel()
	var dir string
	t.Run("the folder is there during the test", func(t *testing.T) {
		dir = ShortDir(t)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			t.Errorf("%v, %v", info, err)
		}
	})
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}
