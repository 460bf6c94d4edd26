package sqlitelog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
)

// markerName is the file that says that the folder has a log. A folder without log.db is
// new only if it has no marker either.
const markerName = "log.created"

// prepareFiles makes what is missing in the folder and removes what an earlier owner did
// not finish. It returns what shows that the folder has had a log.
func prepareFiles(dir, path string) (traces []string, err error) {
	blobs := filepath.Join(dir, "blobs")
	if err := makeDir(blobs); err != nil {
		return nil, err
	}
	stored, err := sweepBlobs(blobs)
	if err != nil {
		return nil, err
	}
	traces = tracesOfLog(dir, stored)
	size, err := fileSize(path)
	if err != nil || size > 0 {
		return traces, err
	}
	if err := refuseNew(path, whyNew(size), traces); err != nil {
		return nil, err
	}
	return nil, createDatabase(dir, path)
}

// CheckFolder returns an error if the folder has had a log and has lost it. It changes
// nothing.
func CheckFolder(dir string) error {
	path := filepath.Join(dir, "log.db")
	size, err := fileSize(path)
	if err != nil || size > 0 {
		return err
	}
	blobs, _ := filepath.Glob(filepath.Join(dir, "blobs", "[^.]*")) // the pattern is right
	return refuseNew(path, whyNew(size), tracesOfLog(dir, len(blobs)))
}

// refuseNew returns an error if the folder has had a log: a new one would hide that
// everything is gone.
func refuseNew(path, why string, traces []string) error {
	if len(traces) == 0 {
		return nil
	}
	return damaged(path, fmt.Errorf("%s, and there was a log here: the folder has %s", why, strings.Join(traces, " and ")))
}

// whyNew returns why a database of that size is taken for a new one.
func whyNew(size int64) string {
	if size < 0 {
		return "it is missing"
	}
	return "it is empty"
}

// fileSize returns the size of a file, or -1 if there is none.
func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// tracesOfLog returns what shows that the folder had a log.
func tracesOfLog(dir string, blobs int) (traces []string) {
	if n, err := fileSize(filepath.Join(dir, markerName)); err != nil || n >= 0 {
		traces = append(traces, markerName)
	}
	// The view of the engine is made of the log. Earlier versions wrote no marker.
	for _, name := range []string{"log.db-wal", "view.db"} {
		if n, err := fileSize(filepath.Join(dir, name)); err != nil || n > 0 {
			traces = append(traces, name)
		}
	}
	if blobs > 0 {
		traces = append(traces, fmt.Sprintf("%d blobs", blobs))
	}
	return traces
}

// createDatabase makes a new database under another name, and renames it when it is on
// disk: log.db is whole or not there.
func createDatabase(dir, path string) (err error) {
	tmp := path + ".new"
	defer func() {
		if err != nil {
			err = errors.Join(err, removeDatabase(tmp))
		}
	}()
	if err := removeDatabase(tmp); err != nil {
		return err
	}
	if err := os.WriteFile(tmp, nil, 0o600); err != nil { // for the owner only
		return err
	}
	conn, err := connect(tmp, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	if err := errors.Join(createTables(conn), conn.Close()); err != nil {
		return err
	}
	if err := syncFile(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return errors.Join(err, os.Remove(path)) // its name may not be on disk
	}
	return nil
}

// removeDatabase removes a database and what SQLite puts beside it.
func removeDatabase(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// mark writes the marker, unless it is there. On a full disk it is left for later.
func mark(dir string) error {
	path := filepath.Join(dir, markerName)
	if n, err := fileSize(path); err != nil || n > 0 {
		return err
	}
	text := fmt.Sprintf("This folder has had a log since %s. Without log.db tideover does not start here.\n"+
		"Restore log.db and blobs from a backup, or use another folder.\n", time.Now().UTC().Format(time.RFC3339))
	err := os.WriteFile(path, []byte(text), 0o600)
	if err == nil {
		err = errors.Join(syncFile(path), syncDir(dir))
	}
	if isNoRoom(err) {
		return nil
	}
	return err
}

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
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return
	}
	_, err = io.CopyN(f, rand.Reader, reserveBytes) // zeros would take no room on some file systems
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(path) //nolint:errcheck // a part of it is better than nothing
	}
}

// freeReserve removes the file, and reports whether there was one.
func freeReserve(dir string) bool { return os.Remove(filepath.Join(dir, reserveName)) == nil }

// makeDir creates a folder for the owner only, and makes its name durable.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// syncFile makes the contents of a file durable that nothing has open.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}
