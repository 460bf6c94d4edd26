// Package fileaccess detects files and folders that other users can change. Those users could control a
// server that reads its token or its commands from such a file.
package fileaccess

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// Write permissions that Check can reject.
const (
	GroupOrOthers fs.FileMode = 0o022
	Others        fs.FileMode = 0o002
)

// Check returns an error if other users can change the file or the folder: it belongs to another
// user, who is not root, or its mode has one of the rejected permissions.
func Check(path string, info fs.FileInfo, refused fs.FileMode) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	if uid, ok := owner(info); ok && uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (uid %d), who can change it: run as that user, or chown it", path, uid)
	}
	if mode := info.Mode().Perm(); mode&refused != 0 {
		return fmt.Errorf("other users can write to %s (%v): run chmod go-w on it", path, mode)
	}
	return nil
}

// CheckFolder is Check for a folder that may not exist yet.
func CheckFolder(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return Check(path, info, GroupOrOthers)
}
