package sqlitelog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
)

// ErrForeign says that the folder holds a database of another program.
var ErrForeign = errors.New("not a log of tideover")

// describe adds to an error of SQLite or of the file system which of the
// journal's errors it is, and what to do about it.
func describe(path string, err error) error {
	if err == nil || isDescribed(err) {
		return err
	}
	if isNoRoom(err) {
		return noRoom(path, err)
	}
	code := resultCode(err)
	switch code.ToPrimary() { //nolint:exhaustive // the others are plain errors
	case sqlite.ResultFull:
		return noRoom(path, err)
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return damaged(path, err)
	case sqlite.ResultIOErr:
		if roomErr := tryWrite(filepath.Dir(path)); isNoRoom(roomErr) {
			return noRoom(path, err)
		}
	}
	return fmt.Errorf("%s: %w", path, err)
}

func isDescribed(err error) bool {
	return errors.Is(err, journal.ErrFull) || errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrStale)
}

// resultCode returns the code of an error of SQLite, and ResultOK for others.
func resultCode(err error) sqlite.ResultCode {
	if code := sqlite.ErrCode(err); code != sqlite.ResultError {
		return code
	}
	return sqlite.ResultOK
}

func noRoom(path string, err error) error {
	free := "unknown"
	if n, err := freeBytes(filepath.Dir(path)); err == nil {
		free = fmt.Sprint(n)
	}
	return fmt.Errorf("%w: %s: %s bytes free: %w", journal.ErrFull, path, free, err)
}

func damaged(path string, err error) error {
	return fmt.Errorf("%w: %s: %w; restore a backup of the folder, or move it away to start with an empty one",
		journal.ErrDamaged, path, err)
}

// tryWrite finds out whether there is room. SQLite says of an exceeded quota,
// and of room that runs out only when a file is synced, that it is an I/O error.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(filepath.Join(dir, "blobs"), tmpPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // there may be no room even for that
	_, err = f.Write(make([]byte, 64<<10))
	return errors.Join(err, f.Sync(), f.Close())
}
