//go:build unix

package disk

import (
	"errors"
	"os"
)

// SyncDir syncs the names of the files in a folder to disk.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
