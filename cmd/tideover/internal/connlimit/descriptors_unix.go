//go:build unix

package connlimit

import (
	"math"

	"golang.org/x/sys/unix"
)

// Descriptors returns the soft limit of file descriptors of this process (RLIMIT_NOFILE). Go raises it
// to the hard limit at the start of a program. If the limit is unknown, it returns 1024.
func Descriptors() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	return int(min(uint64(l.Cur), math.MaxInt32)) //nolint:unconvert // signed on some systems
}
