//go:build unix

package config

import (
	"io/fs"
	"syscall"
)

// ofRoot reports whether root owns the file.
func ofRoot(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Uid == 0
}
