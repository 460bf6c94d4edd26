package clustertest

import "golang.org/x/sys/unix"

// sinceBoot is a clock that all processes of the machine share.
func sinceBoot() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}
