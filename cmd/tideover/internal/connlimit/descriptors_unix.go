//go:build unix

package connlimit

import (
	"math"

	"golang.org/x/sys/unix"
)

// Descriptors returns how many descriptors this process may have (RLIMIT_NOFILE). Go raises the limit to
// the hard one when a program starts.
func Descriptors() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	return int(min(uint64(l.Cur), math.MaxInt32)) //nolint:unconvert // signed on some systems
}
