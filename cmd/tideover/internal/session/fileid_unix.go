//go:build unix

package session

import (
	"os"
	"syscall"
)

// fileID returns the inode number, which a file keeps when it is renamed; 0 on an error.
func fileID(f *os.File) uint64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino) //nolint:unconvert // not 64 bits on all systems
	}
	return 0
}
