// Package fileaccess finds files and folders that users other than this one may change. A server that reads
// its token or its commands from such a file does what those users say.
package fileaccess

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// The permissions of others that are not accepted.
const (
	GroupOrOthers fs.FileMode = 0o022
	Others        fs.FileMode = 0o002
)

// Check returns why others may change the file or the folder: it belongs to another user, who is not root, or
// its mode has one of the refused permissions to write. nil means that they may not.
func Check(path string, info fs.FileInfo, refused fs.FileMode) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	if uid, ok := owner(info); ok && uid != 0 && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (uid %d), who may change it: run as that user, or chown it", path, uid)
	}
	if mode := info.Mode().Perm(); mode&refused != 0 {
		return fmt.Errorf("others may write to %s (%v): chmod go-w it", path, mode)
	}
	return nil
}

// CheckFolder is Check for a folder that may not be there yet.
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
