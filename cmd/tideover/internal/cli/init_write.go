package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writeConfig writes a file that only its owner can read, whole or not at all. One
// that is there stays, unless force is given.
func writeConfig(path string, text []byte, force bool) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file; --stdout prints instead", path)
	case err == nil && !force:
		return fmt.Errorf("%s is there already; --force writes over it, --out names another file", path)
	case err == nil:
		return replace(path, text)
	}
	// Not replaced: somebody may have made one meanwhile, or it is a link to nowhere.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return fill(f, text)
}

// replace puts a new file in the place of another. A link stays a link.
func replace(path string, text []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tideover-init-")
	if err != nil {
		return err
	}
	if err := fill(f, text); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// fill writes the text to a new file and closes it. Half a file is removed.
func fill(f *os.File, text []byte) error {
	_, err := f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
