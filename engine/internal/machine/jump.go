package machine

import "time"

// applyJumped moves all times that were measured by elapsed time along with the clock.
// Times that were asked for by the calendar stay.
func (m *state) applyJumped(rec *Record) {
	by, was := rec.Delay, rec.At-int64(rec.Delay)
	for _, r := range m.all {
		if r.knows(m.seq) || r.Finished() {
			continue
		}
		if start, ok := scheduledAfter(r, was); ok {
			// Its time is yet to begin, with the start, which may be now.
			move(&r.Deadline, time.Duration(max(rec.At-start, 0)))
		} else {
			move(&r.Deadline, by)
		}
		for i := range r.Steps {
			s := &r.Steps[i]
			move(&s.First, by)
			if s.Status == Running || s.Status == NoHandler || s.Status == Waiting && (s.At <= was || !s.clock && s.Attempt > 0) {
				move(&s.At, by)
			}
			if s.timer != noTimer {
				m.timers.heap[s.timer].due = s.At
			}
		}
		if r.timer != noTimer {
			m.timers.heap[r.timer].due = r.Deadline
		}
		m.touch(r)
	}
	m.timers.rebuild()
}

// move changes a time, if there is one, as far as times go.
func move(t *int64, by time.Duration) {
	switch {
	case *t == 0:
	case by > 0:
		*t = later(*t, by)
	default:
		*t += int64(by)
	}
}

// scheduledAfter returns when a run that has not begun may do so, if that is after the
// time.
func scheduledAfter(r *Run, now int64) (at int64, ok bool) {
	at = endOfWait(r)
	return at, at > now && !r.begun()
}
