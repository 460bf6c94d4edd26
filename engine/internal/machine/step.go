package machine

import (
	"bytes"
)

// pardon says that an attempt did not count. The total timeout of a step begins
// with the first that does.
func (s *StepState) pardon() {
	if s.Spent == 0 {
		s.First = 0
	}
}

// afresh says that the next attempts are counted from the beginning.
func (s *StepState) afresh() { s.Spent, s.Lost, s.First, s.Prev = 0, 0, 0, 0 }

// forgive forgets what was spent. The time of an attempt that runs goes on.
func (s *StepState) forgive() {
	s.afresh()
	s.Windows = 0
	if s.Status == Running {
		s.First = s.At
	}
}

// setMemo keeps what an attempt has left for the next.
func (r *Run) setMemo(rec *Record) {
	if rec.Data != nil {
		r.setProgress(rec.Step, bytes.Clone(rec.Data))
	}
}

// stopped says that the step's attempt is over.
func (m *Machine) stopped(r *Run, step int) {
	if r.Steps[step].Status != Running {
		return
	}
	r.running--
	r.Def.Steps[step].queue.Running--
}

// follow does what was decided after an attempt that came to nothing.
func (m *Machine) follow(r *Run, rec *Record) {
	if rec.Reason != 0 {
		r.Steps[rec.Step].Status = Exhausted
		if !r.Failing {
			r.Failing, r.Reason = true, rec.Reason
			m.hold(r)
		}
	} else {
		m.wait(r, rec.Step, rec.Due)
	}
	m.settle(r, rec.At)
}

// wait lets the step wait until then. The waits of a run that is failing, or
// over, go on when it is put back to work.
func (m *Machine) wait(r *Run, step int, due int64) {
	s := &r.Steps[step]
	s.Status, s.At, s.clock = Waiting, due, false
	m.leave(r, step)
	if r.waits() {
		m.timers.set(r, int32(step), due)
	}
}

// waitFor lets the step wait as the record says.
func (m *Machine) waitFor(r *Run, rec *Record) {
	m.wait(r, rec.Step, rec.Due)
	r.Steps[rec.Step].clock = rec.Clock
	r.setMemo(rec)
}

// waits reports whether the waits of the run end by themselves.
func (r *Run) waits() bool { return r.Outcome == Undecided && !r.Failing && !r.Held }

// resume lets the waits of a run go on that was held.
func (m *Machine) resume(r *Run) {
	for i := range r.Steps {
		if s := &r.Steps[i]; s.Status == Waiting && r.waits() {
			m.timers.set(r, int32(i), s.At)
		}
	}
}

// hold takes the steps that wait out of the timers and queues.
func (m *Machine) hold(r *Run) {
	for i := range r.Steps {
		m.timers.unset(r, int32(i))
		m.leave(r, i)
	}
}

// open lets those steps begin that needed this one, and nothing else.
func (m *Machine) open(r *Run, step int, at int64) {
	for _, i := range r.Def.Steps[step].opens {
		if r.Steps[i].Status == Blocked && r.needsMet(i) {
			m.wait(r, i, at)
		}
	}
}

func (r *Run) needsMet(step int) bool {
	for _, i := range r.Def.Steps[step].needs {
		if r.Steps[i].Status != Complete {
			return false
		}
	}
	return true
}
