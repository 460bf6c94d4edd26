package machine

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/tideover/tideover/retry"
)

// Begin says that the records that follow are those of the entry.
func (m *Machine) Begin(seq uint64, h Header) {
	m.seq = seq
	m.at, m.sinceBoot = h.At, h.SinceBoot
}

// Apply changes the state as the record says. It fails only on a record that
// contradicts the state, which a log that this package wrote has none of.
func (m *Machine) Apply(rec *Record) error {
	switch rec.Kind { //nolint:exhaustive // the others do nothing here
	case Opened:
		m.boot = rec.Text
		// A snapshot is of one owner. If it knows what came later, that is of a log
		// which has lost its end.
		for _, r := range m.all {
			r.restored = false
		}
		return nil
	case Defined:
		d, err := ParseDefinition(rec.Data)
		if err != nil {
			return err
		}
		m.define(d)
		m.used[d.hash] = max(m.used[d.hash], rec.At)
		return nil
	case Started:
		return m.applyStarted(rec)
	case Jumped:
		m.applyJumped(rec)
		return nil
	case Purged:
		m.applyPurged(rec)
		return nil
	case Cron:
		m.applyCron(rec)
		return nil
	}
	r, ok := m.runs[rec.Run]
	if !ok {
		return fmt.Errorf("%w: %s of the unknown run %s", ErrEncoding, rec.Kind, rec.Run)
	}
	m.count(r.Def.workflow, rec)
	if r.knows(m.seq) {
		return nil
	}
	if err := m.warm(r); err != nil {
		return err
	}
	if rec.Step >= len(r.Steps) {
		return fmt.Errorf("%w: %s of step %d in run %s, which has %d", ErrEncoding, rec.Kind, rec.Step, rec.Run, len(r.Steps))
	}
	m.applyRun(r, rec)
	if r.extra != nil && r.running == 0 {
		r.extra.until = 0 // what ran then has ended
	}
	m.rest(r)
	m.touch(r)
	return nil
}

// knows reports whether the run came from a snapshot that was written after the
// entry which is being replayed.
func (r *Run) knows(seq uint64) bool { return r.restored && r.version >= seq }

// count keeps the totals. They depend on nothing but the record, because a
// snapshot has those of its beginning and the runs of later.
func (m *Machine) count(w *Workflow, rec *Record) {
	t := &w.Totals
	switch rec.Kind { //nolint:exhaustive // the others do nothing here
	case Started:
		t.Started++
	case Begun:
		t.Attempts++
	case Failed:
		t.Failures++
	case Lost:
		t.Lost++
	}
	switch rec.Ends {
	case Succeeded:
		t.Succeeded++
	case Dead:
		t.Dead++
	case Canceled:
		t.Canceled++
	case Undecided:
	}
}

func (m *Machine) applyRun(r *Run, rec *Record) {
	s := &r.Steps[rec.Step]
	if rec.Kind != Progress {
		r.remember(rec)
	}
	switch rec.Kind { //nolint:exhaustive // the others do nothing here
	case Begun:
		m.applyBegun(r, rec)
	case Done:
		m.stopped(r, rec.Step)
		s.Status, s.Lost = Complete, 0
		r.setOutput(rec.Step, bytes.Clone(rec.Data))
		r.done++
		m.open(r, rec.Step, rec.At)
		m.settle(r, rec.At)
	case Failed:
		if r.healthy(rec.Step, rec.At) {
			s.Spent, s.First = 0, s.At
		}
		m.stopped(r, rec.Step)
		s.Spent++
		s.Lost = 0
		s.Prev = rec.Prev
		m.follow(r, rec)
		r.setMemo(rec)
	case Limited:
		m.stopped(r, rec.Step)
		s.Windows++
		s.afresh()
		m.waitFor(r, rec)
		m.settle(r, rec.At)
	case Snoozed:
		m.stopped(r, rec.Step)
		s.Lost = 0
		s.pardon()
		m.waitFor(r, rec)
		m.settle(r, rec.At)
	case Lost:
		m.stopped(r, rec.Step)
		if s.Lost < math.MaxUint16 {
			s.Lost++
		}
		s.pardon()
		m.follow(r, rec)
	case Released:
		m.stopped(r, rec.Step)
		s.pardon()
		m.wait(r, rec.Step, rec.At)
		if r.extra != nil && r.extra.until > rec.At {
			m.wait(r, rec.Step, r.extra.until)
			s.clock = true
		}
		r.setMemo(rec)
		m.settle(r, rec.At)
	case Late:
		m.stopped(r, rec.Step)
		s.Status = Exhausted
		m.settle(r, rec.At)
	case Cancel:
		m.decide(r, Canceled, retry.StopCanceled, rec.At)
	case Expired:
		m.decide(r, Dead, retry.StopTimeout, rec.At)
	case Retry:
		m.applyRetry(r, rec)
	case Woken:
		m.wait(r, rec.Step, rec.At)
	case Postponed:
		if s.Status == Running {
			r.more().until = rec.Due
		} else {
			m.waitFor(r, rec)
		}
	case Held:
		r.Held = true
		m.hold(r)
	case Freed:
		r.Held = false
		m.resume(r)
	case Forgiven:
		for i := range r.Steps {
			s := &r.Steps[i]
			suspect := s.queued && s.Lost > 0
			if suspect {
				m.leave(r, i)
			}
			if s.forgive(); suspect {
				m.enqueue(r, i) // like any other
			}
		}
	case Progress:
		r.setProgress(rec.Step, bytes.Clone(rec.Data))
	case Parked:
		m.timers.unset(r, int32(rec.Step)) // in replay it has not left the timers
		m.leave(r, rec.Step)
		s.Status = NoHandler
		m.park(r, rec.Step)
	case Unparked:
		m.unpark(r, rec.Step)
		m.wait(r, rec.Step, rec.At)
	case Replaced:
		r.more().replacedBy = rec.Other
		m.retire(r, rec.At)
	}
}

func (m *Machine) applyStarted(rec *Record) error {
	if r, known := m.runs[rec.Run]; known {
		if r.knows(m.seq) {
			m.count(r.Def.workflow, rec)
			return nil
		}
		return fmt.Errorf("%w: run %s starts twice", ErrEncoding, rec.Run)
	}
	d, ok := m.defs[rec.Hash]
	if !ok {
		return fmt.Errorf("%w: run %s has an unknown definition", ErrEncoding, rec.Run)
	}
	r := &Run{
		ID: rec.Run, Def: d, Input: bytes.Clone(rec.Data), Created: rec.At,
		Deadline: rec.Deadline, Steps: make([]StepState, len(d.Steps)), timer: noTimer,
	}
	source, key := cutSource(rec.Text)
	r.Key = key
	if source != "" {
		r.more().source = source
	}
	if !rec.Other.IsZero() {
		r.more().previous = rec.Other
	}
	for i := range r.Steps {
		r.Steps[i].timer = noTimer
	}
	for i, out := range rec.Outputs {
		if out != nil && i < len(r.Steps) {
			r.Steps[i].Status = Complete
			r.setOutput(i, bytes.Clone(out))
			r.done++
		}
	}
	m.add(r)
	m.claim(r)
	if m.snapshot != nil {
		r.snap = m.snapshot.no // the log has it from the beginning
	}
	m.used[rec.Hash] = max(m.used[rec.Hash], rec.At)
	m.count(d.workflow, rec)
	r.remember(rec)
	if r.Deadline != 0 {
		m.timers.set(r, deadline, r.Deadline)
	}
	for i := range r.Steps {
		if r.Steps[i].Status == Blocked && r.needsMet(i) {
			m.wait(r, i, max(rec.Due, rec.At))
		}
	}
	m.touch(r)
	return nil
}

func (m *Machine) applyBegun(r *Run, rec *Record) {
	s := &r.Steps[rec.Step]
	m.timers.unset(r, int32(rec.Step))
	m.leave(r, rec.Step)
	s.Status, s.At = Running, rec.At
	s.Attempt++
	if s.First == 0 {
		s.First = rec.At
	}
	r.running++
	r.Def.Steps[rec.Step].queue.Running++
	if !r.active {
		r.active = true
		r.Def.workflow.Active++
		m.requeue(r)
	}
}

// settle ends the run if nothing is left to do, or to wait for.
func (m *Machine) settle(r *Run, at int64) {
	switch {
	case r.running > 0:
	case r.Outcome != Undecided:
		m.close(r, at)
	case int(r.done) == len(r.Steps):
		m.decide(r, Succeeded, 0, at)
	case r.Failing:
		m.decide(r, Dead, r.Reason, at)
	}
}

// decide gives the run its outcome. Attempts that still run are waited for.
func (m *Machine) decide(r *Run, o Outcome, why retry.Reason, at int64) {
	r.Outcome, r.Reason, r.Ended, r.Held = o, why, at, false
	m.hold(r)
	m.timers.unset(r, deadline)
	for i := range r.Steps {
		if r.Steps[i].Status == NoHandler {
			m.unpark(r, i)
			r.Steps[i].Status = Waiting
		}
	}
	if r.running == 0 {
		m.close(r, at)
	}
}

// rest lets another run have the place of one that nothing goes on with: it is
// paused, or waits for a handler. It needs a place again to go on.
func (m *Machine) rest(r *Run) {
	if !r.active || r.running > 0 || !r.Held && !r.parked() {
		return
	}
	r.active = false
	r.Def.workflow.Active--
	m.requeue(r)
}

func (r *Run) parked() bool {
	for i := range r.Steps {
		if r.Steps[i].Status == NoHandler {
			return true
		}
	}
	return false
}

// close says that nothing of the run goes on.
func (m *Machine) close(r *Run, at int64) {
	if r.active {
		r.active = false
		r.Def.workflow.Active--
	}
	if r.Outcome != Dead {
		m.retire(r, at)
	}
}

// retire lets the key and the definition of a finished run be forgotten in time.
func (m *Machine) retire(r *Run, at int64) {
	m.used[r.Def.hash] = max(m.used[r.Def.hash], at)
	if r.Key != "" {
		m.keys[r.Key] = keyed{id: r.ID, of: r.Def.workflow, ended: at}
		m.ended = append(m.ended, expiry{r.Key, at})
	}
}

func (m *Machine) applyRetry(r *Run, rec *Record) {
	r.Outcome, r.Reason, r.Ended, r.Failing, r.retried = Undecided, 0, 0, false, true
	r.Deadline = rec.Deadline
	if r.Deadline != 0 {
		m.timers.set(r, deadline, r.Deadline)
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		switch s.Status {
		case Exhausted:
			s.forgive()
			m.wait(r, i, rec.At)
		case Waiting:
			s.First = 0 // the time it was dead does not count
			clock := s.clock
			m.wait(r, i, max(s.At, rec.At))
			s.clock = clock
		case Blocked:
			if r.needsMet(i) {
				m.wait(r, i, rec.At)
			}
		case Running, Complete, NoHandler:
		}
	}
}

// cutSource parts what stands in a Started record: who started it, and the key.
func cutSource(text string) (source, key string) {
	source, key, _ = strings.Cut(text, "\x00")
	return source, key
}

func (m *Machine) applyCron(rec *Record) {
	if rec.Data == nil {
		delete(m.schedules, rec.Text)
		return
	}
	m.schedules[rec.Text] = &Schedule{Name: rec.Text, Due: rec.Due, Data: bytes.Clone(rec.Data)}
}
