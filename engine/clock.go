package engine

import "time"

// jump is how far the wall clock may move away from the time that passes before
// that is recorded.
const jump = 500 * time.Millisecond

// clock reads the wall clock, and notices when it was set.
type clock struct {
	mono time.Time                               // the last look
	up   time.Duration                           // time since boot then; 0 when unknown
	off  time.Duration                           // how far the wall clock went its own way since that was last reported
	last int64                                   // what the wall clock said then
	wall func(time.Time) int64                   // what it says; a test may set it
	boot func() (since time.Duration, id string) // time since the machine's boot, and which one; 0 and "" when unknown
}

func newClock(boot func() (time.Duration, string)) *clock {
	c := &clock{wall: time.Time.UnixNano, boot: boot, mono: time.Now()}
	c.last, c.up = c.wall(c.mono), c.uptime()
	return c
}

// now returns the time, and by how much the clock was set since the last look.
func (c *clock) now() (at int64, jumped time.Duration) {
	mono := time.Now()
	at = c.wall(mono)
	// The monotonic clock stands still while the machine sleeps; that of the boot
	// does not, and sleep is time that passes.
	passed, up := mono.Sub(c.mono), c.uptime()
	if up > 0 && c.up > 0 {
		passed = up - c.up
	}
	if c.off += time.Duration(at-c.last) - passed; c.off < -jump || c.off > jump {
		jumped, c.off = c.off, 0
	}
	c.mono, c.last, c.up = mono, at, up
	return at, jumped
}

func (c *clock) uptime() time.Duration {
	up, _ := c.boot()
	return up
}

// since returns by how much the wall clock was set since an entry that was written at the
// time, so long after a boot. If the machine was started again since, only one thing is
// certain: time does not go back.
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
