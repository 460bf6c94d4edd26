package sqlitelog

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
)

// ErrForeign says that log.db in the folder is a database of another program.
var ErrForeign = errors.New("not a log of tideover")

// describe adds the path to an error of SQLite or of the file system, and makes it match the error
// of package journal that it means: ErrFull or ErrDamaged.
func describe(path string, err error) error {
	if err == nil || errors.Is(err, journal.ErrFull) || errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrStale) {
		return err // nothing to add
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
		// SQLite reports an exceeded quota, and a disk that is found to be full only at a sync, as
		// an I/O error.
		if isNoRoom(disk.TryWrite(filepath.Join(filepath.Dir(path), "blobs"))) {
			return noRoom(path, err)
		}
	}
	return fmt.Errorf("%s: %w", path, err)
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
	return fmt.Errorf("%w: %s: %w; restore a backup, which replaces the whole folder, or move the folder away to start with an empty one",
		journal.ErrDamaged, path, err)
}
