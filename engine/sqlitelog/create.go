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

	"github.com/tideover/tideover/engine/internal/disk"
	"zombiezen.com/go/sqlite"
)

// markerName is the name of a file that says that the folder has a log. A folder without log.db is
// new only if it does not have this file either.
const markerName = "log.created"

// prepareFiles creates missing files of the folder and removes incomplete ones of an earlier owner. The
// caller must have inspected the folder.
func prepareFiles(dir, path string) error {
	blobs := filepath.Join(dir, "blobs")
	if err := makeDir(blobs); err != nil {
		return err
	}
	if err := sweepBlobs(blobs); err != nil {
		return err
	}
	size, err := fileSize(path)
	if err != nil || size > 0 {
		return err
	}
	return createDatabase(dir, path)
}

// refuseNew returns an error if there are traces of an earlier log: a new log would hide that the
// data is lost. why says what is wrong with log.db.
func refuseNew(path, why string, traces []string) error {
	if len(traces) == 0 {
		return nil
	}
	return damaged(path, fmt.Errorf("%s, and there was a log here: the folder has %s", why, strings.Join(traces, " and ")))
}

// fileSize returns the size of a file, or -1 if it does not exist.
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

// tracesOfLog returns the names of files which show that the folder had a log.
func tracesOfLog(dir string, blobs int) (traces []string) {
	if n, err := fileSize(filepath.Join(dir, markerName)); err != nil || n >= 0 {
		traces = append(traces, markerName)
	}
	// Earlier versions wrote no marker. The view of the engine shows that there was a log too.
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

// createDatabase creates a new database with another name, and renames it to log.db when it is on
// disk. So log.db is complete or does not exist.
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
	if err := os.WriteFile(tmp, nil, 0o600); err != nil { // readable only for the owner
		return err
	}
	conn, err := connect(tmp, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	err = createTables(conn)
	if err == nil {
		// Close moves the write-ahead log to the database too, but does not report a failed sync.
		err = pragma(conn, "wal_checkpoint(TRUNCATE)")
	}
	if err := errors.Join(err, conn.Close()); err != nil {
		return err
	}
	if err := syncFile(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	if err := disk.SyncDir(dir); err != nil {
		return errors.Join(err, os.Remove(path)) // the name may not be on disk: begin again next time
	}
	return nil
}

// removeDatabase removes a database and the files that SQLite creates beside it.
func removeDatabase(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := disk.Remove(path + suffix); err != nil {
			return err
		}
	}
	return nil
}

// mark writes the marker file, unless it exists. If the disk is full, it does nothing: the next
// start writes it.
func mark(dir string) error {
	path := filepath.Join(dir, markerName)
	if n, err := fileSize(path); err != nil || n > 0 {
		return err
	}
	text := fmt.Sprintf("This folder has had a log since %s. Without log.db tideover does not start here.\n"+
		"Restore a backup, which replaces the whole folder, or use another folder.\n", time.Now().UTC().Format(time.RFC3339))
	err := os.WriteFile(path, []byte(text), 0o600)
	if err == nil {
		err = errors.Join(syncFile(path), disk.SyncDir(dir))
	}
	if isNoRoom(err) {
		return nil
	}
	return err
}

// Opening a log needs some disk space: for shared memory, for the first entries, for a view. The
// reserve is a file that keeps this space. If the disk is full at a start, the file is removed, so
// that the server can start and report the full disk.
const (
	reserveName  = "log.reserve"
	reserveBytes = 1 << 20
)

// keepReserve creates the reserve file, unless it exists. If there is too little space, it makes a
// smaller one, so that the next start on a full disk has a reserve again.
func keepReserve(dir string) {
	path := filepath.Join(dir, reserveName)
	if n, err := fileSize(path); err != nil || n >= reserveBytes {
		return
	}
	for n := int64(reserveBytes); n >= reserveBytes/16 && !writeReserve(path, n); n /= 2 {
	}
}

// writeReserve writes a reserve file of n bytes, and reports whether there was space for it.
func writeReserve(path string, n int64) bool {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false
	}
	_, err = io.CopyN(f, rand.Reader, n) // some file systems do not allocate space for zeros
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(path) //nolint:errcheck // if the file stays, it still reserves some space
		return false
	}
	return true
}

// freeReserve removes the reserve file, and reports whether it existed.
func freeReserve(dir string) bool { return os.Remove(filepath.Join(dir, reserveName)) == nil }

// makeDir creates a folder that only the owner can access, unless it exists, and syncs its name to
// disk.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(dir))
}

// syncFile syncs the content of a closed file to disk.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
