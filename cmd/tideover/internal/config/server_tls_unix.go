//go:build unix

package config

import (
	"io/fs"
	"syscall"
)

// ofRoot reports whether the file is root's.
func ofRoot(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Uid == 0
}
