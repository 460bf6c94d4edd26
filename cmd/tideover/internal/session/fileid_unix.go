//go:build unix

package session

import (
	"os"

	"golang.org/x/sys/unix"
)

// fileID returns the inode number, which a file keeps when it is renamed; 0 on an error.
func fileID(f *os.File) uint64 {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return uint64(st.Ino) //nolint:unconvert // not 64 bits on all systems
}
