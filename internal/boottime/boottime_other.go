//go:build !linux

package boottime

import "time"

// Elapsed says that nothing is known.
func Elapsed() (time.Duration, string) { return 0, "" }
