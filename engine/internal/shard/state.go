package shard

import (
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
)

// state is the state of a shard, and how far it is. The owner changes it, and its parts read it.
type state struct {
	m        *machine.Machine
	seq      uint64 // number of the last entry of the log
	clock    *clock
	openedAt time.Time // when this process had opened the shard
	stopping bool      // the shard is being closed: no attempt begins any more
}

// registrationTime is how long the engine waits, after it was opened, for handlers and
// workflows to be registered, before it records that one is missing.
const registrationTime = 2 * time.Second

// registeredBy returns the end of the registration time, in Unix nanoseconds.
func (s *state) registeredBy() int64 { return s.openedAt.Add(registrationTime).UnixNano() }

// isRegistering reports whether the registration time is not over.
func (s *state) isRegistering() bool { return time.Since(s.openedAt) < registrationTime }

// jump is the tolerance of clock. If the wall clock differs by more than this from the time
// that has passed, it was set.
const jump = 500 * time.Millisecond

// minSkew is the least difference of two machines' clocks that is recorded when a shard moves
// from one to the other. To record it changes every unfinished run, and the clocks of machines
// that use NTP differ by a few milliseconds.
const minSkew = 50 * time.Millisecond

// clock reads the wall clock, and detects when someone has set it.
type clock struct {
	mono time.Time                               // time of the last call of now, by the monotonic clock
	up   time.Duration                           // time since boot at the last call of now, as last; 0 if unknown
	off  time.Duration                           // drift of the wall clock since the last reported jump
	last int64                                   // Unix nanoseconds of the wall clock at the last call of now
	wall func(time.Time) int64                   // returns the Unix nanoseconds of a time; a test may set it
	boot func() (since time.Duration, id string) // returns the time since boot and the id of the boot; 0 and "" if unknown
}

func newClock(wall func(time.Time) int64, boot func() (time.Duration, string)) *clock {
	c := &clock{wall: wall, boot: boot, mono: time.Now()}
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

// since returns by how much the wall clock of this process is ahead of the one that an entry was
// written by: the clock was set since then, or it is that of another machine. The arguments are
// the entry's wall clock time, its time since boot, the id of that boot, and by how much the time
// since boot of this machine is ahead of that one. If the boot is this one, ahead is not used.
// Otherwise ahead is at least the true difference, so that the result is at least the true one:
// what is not known makes waits longer, never shorter. If the difference is not known, since can
// only detect a clock that is behind the entry.
func (c *clock) since(at int64, sinceBoot time.Duration, boot string, ahead time.Duration, known bool) time.Duration {
	wall, most := time.Duration(c.last-at), jump
	switch _, id := c.boot(); {
	case id != "" && id == boot && c.up >= sinceBoot:
		ahead = 0
	case known:
		most = minSkew
	default:
		return min(wall, 0)
	}
	if drift := wall - max(c.up-ahead-sinceBoot, 0); drift < -jump || drift > most {
		return drift
	}
	return 0
}

// pauses has the paused workflows of a shard, for readers in other goroutines than the owner's.
type pauses struct {
	byName atomic.Pointer[map[string]info.PausedWorkflow]
}

// update copies the pauses of the state.
func (p *pauses) update(m *machine.Machine) {
	list := map[string]info.PausedWorkflow{}
	for name, w := range m.Workflows() {
		if w.Pause != nil {
			list[name] = *describePause(w.Pause)
		}
	}
	p.byName.Store(&list)
}

// describe sets Info.WorkflowPaused of a run. undoing says that the run undoes its operations: also
// then it may wait for a handler.
func (p *pauses) describe(i *info.Info, undoing bool) {
	if i.Finished() || undoing {
		return
	}
	if list := p.byName.Load(); list != nil {
		if one, paused := (*list)[i.Workflow]; paused {
			i.WorkflowPaused = &one
		}
	}
}

// describePause returns the pause of a workflow as it is shown; nil for nil.
func describePause(p *machine.Pause) *info.PausedWorkflow {
	if p == nil {
		return nil
	}
	return &info.PausedWorkflow{At: time.Unix(0, p.At), By: p.By}
}
