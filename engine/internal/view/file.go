package view

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"zombiezen.com/go/sqlite"
)

// busy is how long a connection waits for another process, such as a backup, to
// let go of the file.
const busy = 5 * time.Second

// versionError says that the file has another format than ours.
type versionError struct{ app, version int64 }

func (e *versionError) Error() string {
	switch {
	case e.app != appID:
		return "not a view"
	case e.version > version:
		return fmt.Sprintf("of the newer version %d", e.version)
	default:
		return fmt.Sprintf("of the older version %d", e.version)
	}
}

// checkVersion reads whose file it is and what format it has. A file without
// content is a new view.
func checkVersion(c *sqlite.Conn) error {
	var found [3]int64
	for i, q := range [...]string{
		"PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema",
	} {
		var err error
		if found[i], err = queryInt(c, q); err != nil {
			return err
		}
	}
	if found == [3]int64{} || found[0] == appID && found[1] == version {
		return nil
	}
	return &versionError{found[0], found[1]}
}

// unusable says why a file has to be replaced, or "" if it need not be.
func unusable(err error) string {
	var v *versionError
	code := sqlite.ErrCode(err)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &v):
		return v.Error()
	case errors.Is(err, ErrDamaged):
		return "damaged: " + err.Error()
	case code.ToPrimary() == sqlite.ResultNotADB:
		return "not a view"
	case isDamage(code):
		return "damaged: " + code.Message()
	}
	return ""
}

// touch makes the file, so that only its owner can read it: SQLite would ask the
// umask. Its log gets the same mode from SQLite.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// putAway removes a file that can't be used. One that does not look like ours is
// kept under another name: a mistyped path must not cost anybody a file.
func putAway(path string) error {
	ours := looksOurs(path)
	for _, suffix := range [...]string{"", "-wal", "-shm"} {
		var err error
		if ours || suffix == "-shm" {
			err = os.Remove(path + suffix)
		} else {
			err = os.Rename(path+suffix, path+".aside"+suffix)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// looksOurs looks for our number at its place in the header of the file.
func looksOurs(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var header [72]byte
	if _, err := io.ReadFull(f, header[:]); err != nil {
		return false
	}
	return string(header[68:]) == "tidv"
}
