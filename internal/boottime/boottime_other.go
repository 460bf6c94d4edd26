//go:build !linux

package boottime

import "time"

// Elapsed returns 0 and "": the time since boot is not known.
func Elapsed() (time.Duration, string) { return 0, "" }
