//go:build !unix

package sim

import "time"

var start = time.Now()

// cpu returns the time since the start, where processor time is not available.
//
// real clock: only benchmarks call it.
func cpu() time.Duration { return time.Since(start) }
