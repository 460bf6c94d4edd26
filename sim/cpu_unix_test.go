//go:build unix

package sim

import (
	"syscall"
	"time"
)

// cpu returns the processor time that the process has used, which other
// processes do not affect.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
