package engine

import "time"

// jump is how far the wall clock may move away from the monotonic one between
// two looks before it counts as having been set. Slewing stays far below.
const jump = 500 * time.Millisecond

// clock reads the wall clock, and notices when it was set.
type clock struct {
	mono time.Time                               // the last look
	last int64                                   // what the wall clock said then
	wall func(time.Time) int64                   // what it says; a test may set it
	boot func() (since time.Duration, id string) // time since the machine's boot, and which one; 0 and "" when unknown
}

func newClock(boot func() (time.Duration, string)) *clock {
	c := &clock{wall: time.Time.UnixNano, boot: boot, mono: time.Now()}
	c.last = c.wall(c.mono)
	return c
}

// now returns the time, and by how much the clock was set since the last look.
func (c *clock) now() (at int64, jumped time.Duration) {
	mono := time.Now()
	at = c.wall(mono)
	if drift := time.Duration(at-c.last) - mono.Sub(c.mono); drift < -jump || drift > jump {
		jumped = drift
	}
	c.mono, c.last = mono, at
	return at, jumped
}

// since returns by how much the wall clock was set while nobody looked: since an
// entry that was written at the time, so long after a boot. Without a boot in
// common there is only one thing to be sure of, that time does not go back.
func (c *clock) since(at int64, sinceBoot time.Duration, boot string) time.Duration {
	wall := time.Duration(c.last - at)
	if elapsed, id := c.boot(); id != "" && id == boot && elapsed >= sinceBoot {
		if drift := wall - (elapsed - sinceBoot); drift < -jump || drift > jump {
			return drift
		}
		return 0
	}
	return min(wall, 0)
}
