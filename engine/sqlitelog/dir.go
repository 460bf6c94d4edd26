package sqlitelog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

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

// createFile makes an empty file for the owner only, unless there is one, and
// reports whether it did. An existing one is not even opened: closing it would
// drop the locks that SQLite has on it in this process.
func createFile(path string) (created bool, err error) {
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
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
