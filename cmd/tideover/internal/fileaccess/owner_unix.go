//go:build unix

package fileaccess

import (
	"io/fs"
	"syscall"
)

// owner returns the id of the user that the file belongs to.
func owner(info fs.FileInfo) (uid int, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
