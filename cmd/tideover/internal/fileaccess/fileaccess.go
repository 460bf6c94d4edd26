// Package fileaccess detects files and folders that other users can change. Those users could control a
// server that reads its token or its commands from such a file. It also rotates log files.
package fileaccess

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
)

// Values for the parameter refused of [Check]: the bits of a file's mode that let its group,
// or all other users, write to it.
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
	if uid, ok := Owner(info); ok && uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (uid %d), who can change it: run as that user, or chown it", path, uid)
	}
	if mode := info.Mode().Perm(); mode&refused != 0 {
		return fmt.Errorf("other users can write to %s (%v): run chmod go-w on it", path, mode)
	}
	return nil
}

// Rotate renames a file and its earlier versions: path becomes path.1, path.1 becomes path.2, and so on,
// and path.<keep> is replaced. It renames the file with the highest number first, so that no file is
// lost if the process ends meanwhile.
func Rotate(path string, keep int) error {
	for i := keep - 1; i >= 0; i-- {
		if err := os.Rename(Rotated(path, i), Rotated(path, i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Rotated returns the name of a file after i rotations; 0 means the current file.
func Rotated(path string, i int) string {
	if i == 0 {
		return path
	}
	return path + "." + strconv.Itoa(i)
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
