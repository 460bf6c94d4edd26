package testfile

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// The working folder in which the tests began; a test may change it.
var workingDir, errWorkingDir = os.Getwd()

// repository returns the folder above the working folder that has the file go.work.
var repository = sync.OnceValues(func() (string, error) {
	dir, err := workingDir, errWorkingDir
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", os.ErrNotExist
		}
		dir = filepath.Dir(dir)
	}
	return "", err
})

// Repository returns a path in the folder of this repository.
func Repository(t testing.TB, path ...string) string {
	t.Helper()
	dir, err := repository()
	if err != nil {
		t.Fatalf("find the folder of go.work: %v", err)
	}
	return filepath.Join(append([]string{dir}, path...)...)
}
