//go:build !linux

package account

import "time"

// sinceBoot says that nothing is known.
func sinceBoot() (time.Duration, string) { return 0, "" }
