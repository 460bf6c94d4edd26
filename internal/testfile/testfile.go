// Package testfile has files and folders for tests. Only tests import it: it defines the
// flag -update.
package testfile

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

var update = flag.Bool("update", false, "write the files that tests compare with")

// Update reports whether the flag -update is set: tests then write their files instead of
// comparing them.
func Update() bool { return *update }

// Golden compares an output with the file of the path. With -update it writes the file.
func Golden[T ~string | ~[]byte](t testing.TB, path string, got T) {
	t.Helper()
	path = filepath.FromSlash(path)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(got) != string(want) {
		t.Errorf("%s (write it with -update): %v\ngot\n%s\nwant\n%s", path, err, got, want)
	}
}

// ShortDir returns a new folder whose path leaves room for that of a socket, which has
// at most 103 bytes on some systems. The folder is removed after the test.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(ShortTemp(), "to")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// ShortTemp returns the folder for temporary files, or /tmp if its path is too long for
// sockets in folders below it.
func ShortTemp() string {
	if dir := os.TempDir(); len(dir) <= 40 || runtime.GOOS == "windows" {
		return dir
	}
	return "/tmp"
}

// WriteScript writes a file that may be run. No process is forked meanwhile: a child that
// inherits the open file keeps it from being run ("text file busy") until the child's own
// exec.
func WriteScript(t testing.TB, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}
