package engine

import "time"

// jump is the tolerance of clock. If the wall clock differs by more than this from the time
// that has passed, it was set.
const jump = 500 * time.Millisecond

// clock reads the wall clock, and detects when someone has set it.
type clock struct {
	mono time.Time                               // time of the last call of now, by the monotonic clock
	up   time.Duration                           // time since boot at the last call of now, as last; 0 if unknown
	off  time.Duration                           // drift of the wall clock since the last reported jump
	last int64                                   // Unix nanoseconds of the wall clock at the last call of now
	wall func(time.Time) int64                   // returns the Unix nanoseconds of a time; a test may set it
	boot func() (since time.Duration, id string) // returns the time since boot and the id of the boot; 0 and "" if unknown
}

func newClock(boot func() (time.Duration, string)) *clock {
	c := &clock{wall: time.Time.UnixNano, boot: boot, mono: time.Now()}
	c.last = c.wall(c.mono)
	c.up, _ = c.boot()
	return c
}

// now returns the time in Unix nanoseconds, and by how much the wall clock was set since
// the last reported jump; 0 if it was not.
func (c *clock) now() (at int64, jumped time.Duration) {
	mono := time.Now()
	at = c.wall(mono)
	// The monotonic clock stops while the machine sleeps. The time since boot does not,
	// so it is preferred if it is known.
	passed := mono.Sub(c.mono)
	up, _ := c.boot()
	if up > 0 && c.up > 0 {
		passed = up - c.up
	}
	if c.off += time.Duration(at-c.last) - passed; c.off < -jump || c.off > jump {
		jumped, c.off = c.off, 0
	}
	c.mono, c.last, c.up = mono, at, up
	return at, jumped
}

// since returns by how much the wall clock was set since an entry was written. The
// arguments are the entry's wall clock time, its time since boot, and the id of that boot.
// If the machine was booted again, or the boot is unknown, since can only detect a clock
// that went back.
func (c *clock) since(at int64, sinceBoot time.Duration, boot string) time.Duration {
	wall := time.Duration(c.last - at)
	if _, id := c.boot(); id != "" && id == boot && c.up >= sinceBoot {
		if drift := wall - (c.up - sinceBoot); drift < -jump || drift > jump {
			return drift
		}
		return 0
	}
	return min(wall, 0)
}
