// Package atomicfile replaces files atomically.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces the file, or creates it, with a new file that only its owner can read. Readers see
// the old content or the new content, also after a crash of the machine. The folder must exist.
func Write(path string, data []byte) error { return write(path, data, (*os.File).Sync) }

// WriteUnsynced is [Write] without waiting for the disk: after a crash of the machine the file may
// be empty. It is for content that is soon replaced.
func WriteUnsynced(path string, data []byte) error {
	return write(path, data, func(*os.File) error { return nil })
}

func write(path string, data []byte, sync func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, sync(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
