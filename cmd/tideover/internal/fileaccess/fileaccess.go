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

// Values of the parameter refused of [Check]: whose write permission is refused.
const (
	GroupOrOthers fs.FileMode = 0o022
	Others        fs.FileMode = 0o002
)

// Check returns an error if other users can change the file or the folder: if it belongs to another
// user except root, or if its mode has one of the refused permissions. It checks nothing on Windows.
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

// CheckFolder checks a folder by [Check] with GroupOrOthers. A folder that does not exist is no
// error.
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
