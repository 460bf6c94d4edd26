package machine

import (
	"bytes"
)

// uncount makes an attempt one that does not count. The total timeout of a step begins
// with the first that does.
func (s *StepState) uncount() {
	if s.Spent == 0 {
		s.First = 0
	}
}

// recount makes the next attempts count from the beginning.
func (s *StepState) recount() { s.Spent, s.Lost, s.First, s.Prev = 0, 0, 0, 0 }

// forgive resets all that was spent. The time of an attempt that runs goes on.
func (s *StepState) forgive() {
	s.recount()
	s.Windows = 0
	if s.Status == Running {
		s.First = s.At
	}
}

// setMemo stores the memo of an attempt for the next.
func setMemo(r *Run, rec *Record) {
	if rec.Data != nil {
		setProgress(r, rec.Step, bytes.Clone(rec.Data))
	}
}

// endAttempt ends the attempt of the step, if one runs.
func endAttempt(r *Run, step int) {
	if r.Steps[step].Status != Running {
		return
	}
	r.running--
	r.Def.Steps[step].queue.Running--
}

// waitOrFail applies the decision after an attempt without a result: the step waits, or
// has failed for good.
func (m *state) waitOrFail(r *Run, rec *Record) {
	if rec.Reason != 0 {
		r.Steps[rec.Step].Status = Exhausted
		if !r.Failing {
			r.Failing, r.Reason = true, rec.Reason
			m.stopWaits(r)
		}
	} else {
		m.wait(r, rec.Step, rec.Due)
	}
	m.endIfDone(r, rec.At)
}

// wait makes the step wait until the time. The waits of a run that is failing, or has
// ended, go on when it is put back to work.
func (m *state) wait(r *Run, step int, due int64) {
	s := &r.Steps[step]
	s.Status, s.At, s.clock = Waiting, due, false
	m.dequeue(r, step)
	if r.waits() {
		m.timers.set(r, int32(step), due)
	}
}

// waitFor makes the step wait as the record says.
func (m *state) waitFor(r *Run, rec *Record) {
	m.wait(r, rec.Step, rec.Due)
	r.Steps[rec.Step].clock = rec.Clock
	setMemo(r, rec)
}

// resumeWaits sets the timers of a run again that was paused.
func (m *state) resumeWaits(r *Run) {
	for i := range r.Steps {
		if s := &r.Steps[i]; s.Status == Waiting && r.waits() {
			m.timers.set(r, int32(i), s.At)
		}
	}
}

// stopWaits removes the steps of a run from the timers and queues.
func (m *state) stopWaits(r *Run) {
	for i := range r.Steps {
		m.timers.unset(r, int32(i))
		m.dequeue(r, i)
	}
}

// startNext lets the steps begin that needed this one, and no other that is not complete.
func (m *state) startNext(r *Run, step int, at int64) {
	for _, i := range r.Def.Steps[step].opens {
		if r.Steps[i].Status == Blocked && needsMet(r, i) {
			m.wait(r, i, at)
		}
	}
}

func needsMet(r *Run, step int) bool {
	for _, i := range r.Def.Steps[step].needs {
		if r.Steps[i].Status != Complete {
			return false
		}
	}
	return true
}
