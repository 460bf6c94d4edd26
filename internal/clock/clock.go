// Package clock reads monotonic time as a plain duration.
//
// The cores of the breaker and the limits take the current time as an argument
// of this form, so that a simulator can give them virtual time. Their shells
// call [Now].
package clock

import (
	"math"
	"time"
)

// origin lies so far back that readings are positive in a bubble of
// testing/synctest too, whose clock starts in the year 2000.
var origin = time.Now().Add(-64 * 365 * 24 * time.Hour)

// Now returns the monotonic time since an origin of the process's own. Only
// differences mean anything, and none is between readings inside and outside
// of a bubble. It costs about half of [time.Now].
func Now() time.Duration { return time.Since(origin) }

// Time returns the time of a reading, for whoever needs one with a calendar.
func Time(reading time.Duration) time.Time { return origin.Add(reading) }

// Later returns the reading d after t, at most the largest one there is.
func Later(t, d time.Duration) time.Duration {
	if s := t + d; s >= t {
		return s
	}
	return math.MaxInt64
}
