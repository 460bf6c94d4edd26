package machine

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// Begin starts an entry: the records that follow are part of it.
func (m *Machine) Begin(seq uint64, h Header) {
	m.seq = seq
	m.at, m.sinceBoot = h.At, h.SinceBoot
}

// Apply changes the state as the record says. It fails only on a record that
// contradicts the state; a log that this package wrote has none.
func (m *Machine) Apply(rec *Record) error {
	switch rec.Kind { //nolint:exhaustive // the others do nothing here
	case Opened:
		m.boot = rec.Text
		// A snapshot belongs to one owner. If a run in it knows later entries, those
		// are of a log that has lost its end.
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
		m.use(d.hash, rec.At)
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
	r.Def.workflow.Totals.count(rec)
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
		r.extra.until = 0 // the attempts that ran then have ended
	}
	m.giveUpPlace(r)
	m.touch(r)
	return nil
}

// count counts the record. Totals depend on records alone, because a snapshot has the
// totals of its beginning and the runs as they were later.
func (t *Totals) count(rec *Record) {
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
		appendHistory(r, rec)
	}
	switch rec.Kind { //nolint:exhaustive // the others do nothing here
	case Begun:
		m.applyBegun(r, rec)
	case Done, Failed, Limited, Snoozed, Lost, Released, Late:
		m.applyEnd(r, rec)
	case Cancel:
		m.setOutcome(r, Canceled, retry.StopCanceled, rec.At)
	case Expired:
		m.setOutcome(r, Dead, retry.StopTimeout, rec.At)
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
		m.stopWaits(r)
	case Freed:
		r.Held = false
		m.resumeWaits(r)
	case Forgiven:
		for i := range r.Steps {
			s := &r.Steps[i]
			suspect := s.queued && s.Lost > 0
			if suspect {
				m.dequeue(r, i)
			}
			if s.forgive(); suspect {
				m.enqueue(r, i) // as a step without losses
			}
		}
	case Progress:
		setProgress(r, rec.Step, bytes.Clone(rec.Data))
	case Parked:
		m.timers.unset(r, int32(rec.Step)) // in replay it has not left the timers
		m.dequeue(r, rec.Step)
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

// applyEnd applies the end of an attempt.
func (m *Machine) applyEnd(r *Run, rec *Record) {
	s := &r.Steps[rec.Step]
	if s.Status == Running {
		r.running--
		r.Def.Steps[rec.Step].queue.Running--
	}
	switch rec.Kind { //nolint:exhaustive // the others end no attempt
	case Done:
		s.Status, s.Lost = Complete, 0
		setOutput(r, rec.Step, bytes.Clone(rec.Data))
		r.done++
		m.startNext(r, rec.Step, rec.At)
	case Failed:
		if healthy(r, rec.Step, rec.At) {
			s.Spent, s.First = 0, s.At
		}
		s.Spent++
		s.Lost = 0
		s.Prev = rec.Prev
		m.waitOrFail(r, rec)
		setMemo(r, rec)
	case Limited:
		s.Windows++
		s.recount()
		m.waitFor(r, rec)
	case Snoozed:
		s.Lost = 0
		s.uncount()
		m.waitFor(r, rec)
	case Lost:
		if s.Lost < math.MaxUint16 {
			s.Lost++
		}
		s.uncount()
		m.waitOrFail(r, rec)
	case Released:
		s.uncount()
		m.wait(r, rec.Step, rec.At)
		if r.extra != nil && r.extra.until > rec.At {
			m.wait(r, rec.Step, r.extra.until)
			s.clock = true
		}
		setMemo(r, rec)
	case Late:
		s.Status = Exhausted
	}
	m.endIfDone(r, rec.At)
}

func (m *Machine) applyStarted(rec *Record) error {
	if r, known := m.runs[rec.Run]; known {
		if r.knows(m.seq) {
			r.Def.workflow.Totals.count(rec)
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
	source, key, _ := strings.Cut(rec.Text, "\x00")
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
			setOutput(r, i, bytes.Clone(out))
			r.done++
		}
	}
	m.add(r)
	m.claimKey(r)
	if m.snapshot != nil {
		r.snap = m.snapshot.no // the log has it from the beginning
	}
	m.use(rec.Hash, rec.At)
	d.workflow.Totals.count(rec)
	appendHistory(r, rec)
	if r.Deadline != 0 {
		m.timers.set(r, deadline, r.Deadline)
	}
	for i := range r.Steps {
		if r.Steps[i].Status == Blocked && needsMet(r, i) {
			m.wait(r, i, max(rec.Due, rec.At))
		}
	}
	m.touch(r)
	return nil
}

func (m *Machine) applyBegun(r *Run, rec *Record) {
	s := &r.Steps[rec.Step]
	m.timers.unset(r, int32(rec.Step))
	m.dequeue(r, rec.Step)
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
			if needsMet(r, i) {
				m.wait(r, i, rec.At)
			}
		case Running, Complete, NoHandler:
		}
	}
}

// applyJumped moves all times that were measured by elapsed time along with the clock.
// Times that were asked for by the calendar stay.
func (m *state) applyJumped(rec *Record) {
	by, was := rec.Delay, rec.At-int64(rec.Delay)
	for _, r := range m.all {
		if r.knows(m.seq) || r.Finished() {
			continue
		}
		if start := endOfWait(r); start > was && !r.begun() {
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

// applyPurged removes the keys of runs that ended before At, the dead runs that died
// before Due and are not in Data, and definitions that were not used since. It must not
// depend on which finished runs are in memory: that is not recorded.
func (m *state) applyPurged(rec *Record) {
	m.ended = slices.DeleteFunc(m.ended, func(e expiry) bool {
		if e.at >= rec.At {
			return false
		}
		if r := m.runs[m.keys[e.key].id]; r != nil && r.knows(m.seq) {
			return false // it ends later
		}
		delete(m.keys, e.key)
		return true
	})
	for _, d := range m.defs {
		d.open = false
	}
	keep := map[ID]bool{}
	for data := rec.Data; len(data) >= len(ID{}); data = data[len(ID{}):] {
		keep[ID(data[:len(ID{})])] = true
	}
	var dead []*Run
	for _, r := range m.all {
		switch known := r.knows(m.seq); {
		case r.Closed() && !r.Finished() && r.Ended < rec.Due && !known && !keep[r.ID]:
			dead = append(dead, r)
		case known || !r.Finished():
			r.Def.open = true
		}
	}
	for _, r := range dead {
		if k := m.keys[r.Key]; k.id == r.ID {
			delete(m.keys, r.Key)
		}
		// In a snapshot that the run is written to when it is removed, it must not know
		// this entry, which may have changed it too.
		r.version = min(r.version, m.seq-1)
		m.remove(r)
		m.purged = append(m.purged, r.ID)
	}
	m.definitionSet.purge(min(rec.At, rec.Due))
}
