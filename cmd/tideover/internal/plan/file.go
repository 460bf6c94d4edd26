package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// WriteFile writes data to a file atomically: it writes a temporary file and renames it. It writes
// directly to an existing file that is not regular, such as a pipe.
func WriteFile(path string, data []byte) error {
	path = resolveLink(path)
	mode := os.FileMode(0o666) // reduced by the umask
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
		err = e.Err // drop the name of the temporary file
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// resolveLink returns the path that a symbolic link points to, also if there is no file, so that
// WriteFile does not replace the link. It returns any other path unchanged.
func resolveLink(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	for range 40 { // Linux follows at most 40 links
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

// writeNew writes a new file and syncs it to the disk.
func writeNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
