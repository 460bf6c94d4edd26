package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// writeConfig writes a file that only its owner can read, completely or not at all. It replaces an
// existing file only if force is true.
func writeConfig(path string, text []byte, force bool) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: use --stdout to print the configuration", path)
	case err == nil && !force:
		return fmt.Errorf("%s exists already: use --force to replace it, or --out for another name", path)
	case err == nil:
		return replaceFile(path, text)
	}
	// O_EXCL: another process may have created the file meanwhile, or it is a dangling link.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return writeAndClose(f, text)
}

// replaceFile replaces an existing file atomically. A symbolic link stays, and its target is
// replaced.
func replaceFile(path string, text []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tideover-init-")
	if err != nil {
		return err
	}
	if err := writeAndClose(f, text); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// writeAndClose writes text to a new file and closes it. If that fails, it removes the file.
func writeAndClose(f *os.File, text []byte) error {
	_, err := f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
