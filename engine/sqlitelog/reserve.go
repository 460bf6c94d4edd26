package sqlitelog

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
)

// A log that is opened needs a little room: for shared memory, for the first entries, for
// a view. So that a server starts on a full disk, and can say what is wrong, there is
// a file that takes that much room until it is needed.
const (
	reserveName  = "log.reserve"
	reserveBytes = 1 << 20
)

// keepReserve makes the file, unless it is there. Without room there is none.
func keepReserve(dir string) {
	path := filepath.Join(dir, reserveName)
	if n, err := fileSize(path); err != nil || n >= reserveBytes {
		return
	}
	data := make([]byte, reserveBytes)
	rand.Read(data) //nolint:errcheck // it never fails; zeros would take no room on some file systems
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(path) //nolint:errcheck // a part of it is better than nothing
	}
}

// freeReserve removes the file, and reports whether there was one.
func freeReserve(dir string) bool { return os.Remove(filepath.Join(dir, reserveName)) == nil }
