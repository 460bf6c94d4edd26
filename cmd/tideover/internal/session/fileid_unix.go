//go:build unix

package session

import (
	"os"
	"syscall"
)

// fileID returns a number that the file keeps when it is renamed.
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
