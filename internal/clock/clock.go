// Package clock returns monotonic time as a plain duration.
//
// The state machines of the breaker and the limits take the current time as an
// argument of this form, so that a simulator can pass virtual time. Their
// public methods call [Now].
package clock

import (
	"math"
	"time"
)

// origin is so long ago that readings are positive in a bubble of
// testing/synctest too, whose clock starts in the year 2000.
var origin = time.Now().Add(-64 * 365 * 24 * time.Hour)

// Now returns the monotonic time since an origin of this process. Only
// differences have a meaning, and only between readings that are both inside or
// both outside of a synctest bubble. It costs about half of [time.Now].
func Now() time.Duration { return time.Since(origin) }

// Time converts a reading to a time with a date.
func Time(reading time.Duration) time.Time { return origin.Add(reading) }

// Later returns the reading that is d after t, or the longest duration if the sum does not
// fit.
func Later(t, d time.Duration) time.Duration {
	if s := t + d; s >= t {
		return s
	}
	return math.MaxInt64
}
