package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// WriteFile puts data into a file, whole or not at all: it is written beside
// the file under another name and then takes its place. What is there and no
// regular file, such as a pipe, is written to.
func WriteFile(path string, data []byte) error {
	path = follow(path)
	mode := os.FileMode(0o666) // and the umask
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			return os.WriteFile(path, data, 0o666)
		}
		mode = info.Mode().Perm()
	}
	name := fmt.Sprintf(".%s.%016x", filepath.Base(path), rand.Uint64())
	temp := filepath.Join(filepath.Dir(path), name)
	err := writeNew(temp, data, mode)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err == nil {
		return nil
	}
	_ = os.Remove(temp)
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the other name says nothing to the caller
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// follow returns the file that a link leads to, existing or not: a link stays a
// link.
func follow(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	for range 40 { // as the system does
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return path
}

// writeNew writes a file that must not exist, and waits until it is on disk.
func writeNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
