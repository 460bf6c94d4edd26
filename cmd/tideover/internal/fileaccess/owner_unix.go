//go:build unix

package fileaccess

import (
	"io/fs"
	"syscall"
)

// Owner returns the user id of the file's owner.
func Owner(info fs.FileInfo) (uid int, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
