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

// Begin starts the entry with the number seq. Apply is then called with each of its records.
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
		// A snapshot belongs to one owner. If a run of the snapshot knows entries after
		// this one, the log has lost them: apply the new entries to the run.
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
	case Halted:
		m.applyHalted(rec)
		return nil
	}
	r, ok := m.Run(rec.Run)
	if !ok {
		return fmt.Errorf("%w: %s of the unknown run %s", ErrEncoding, rec.Kind, rec.Run)
	}
	if !r.Def.Flow || rec.Step > 0 || rec.Kind != Begun { // the call of a function is no attempt
		r.Def.workflow.Totals.count(rec)
	}
	if rec.Kind == Called && rec.Hash != (Hash{}) {
		m.use(rec.Hash, rec.At)
	}
	if r.knows(m.seq) {
		return nil
	}
	if err := m.warm(r); err != nil {
		return err
	}
	if !r.has(rec.Step) && rec.Kind != Called {
		return fmt.Errorf("%w: %s of step %d in run %s, which has no such step", ErrEncoding, rec.Kind, rec.Step, rec.Run)
	}
	if rec.Kind == Called {
		if err := m.applyCalled(r, rec); err != nil {
			return err
		}
		appendHistory(r, rec)
	} else {
		m.applyRun(r, rec)
	}
	if r.extra != nil && r.running == 0 {
		r.extra.until = 0 // all attempts that were postponed have ended
	}
	m.giveUpPlace(r)
	m.touch(r)
	return nil
}

// count adds the record to the totals. Totals must depend only on records, and not on the
// state of runs: a snapshot has the totals of its beginning, but later states of the runs.
func (t *Totals) count(rec *Record) {
	switch rec.Kind { //nolint:exhaustive // the others do nothing here
	case Started:
		t.Started++
	case Begun:
		t.Attempts++
	case Called:
		t.Attempts += uint64(rec.Attempt)
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
	s := r.Step(rec.Step)
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
		if r.flow != nil && r.Steps[0].Status == Blocked {
			m.dequeue(r, 0) // the operations for which it was due are due later
		}
	case Held:
		r.Held = true
		m.stopWaits(r)
	case Freed:
		r.Held = false
		m.resumeWaits(r)
	case Forgiven:
		for n, s := range r.Live() {
			suspect := s.queued && s.Lost > 0
			if suspect {
				m.dequeue(r, n)
			}
			if s.forgive(); suspect {
				m.enqueue(r, n) // as a step without losses
			}
		}
	case Progress:
		setProgress(r, rec.Step, bytes.Clone(rec.Data))
	case Parked:
		m.endAttempt(r, rec.Step)
		m.timers.unset(r, int32(rec.Step)) // in a replay its timer may still be set
		m.dequeue(r, rec.Step)
		s.Status = NoHandler
		m.park(r, rec.Step)
	case Unparked:
		m.unpark(r, rec.Step)
		m.wait(r, rec.Step, rec.At)
	case Replaced:
		r.more().replacedBy = rec.Other
		m.retire(r, rec.At)
	case Suspended:
		m.applySuspended(r, rec)
	case Described:
		r.flow.applyDescribed(rec)
	case Signaled:
		m.applySignaled(r, rec)
	case NoSignal:
		m.endOp(r, rec)
	case ChildEnded:
		m.applyChildEnded(r, rec)
	case Adopted:
		m.adopted = true
		r.more().parent = &Parent{Run: rec.Other, Number: rec.Count}
	case ParentTold:
		r.applyTold()
		m.retireUnneeded(r, rec.At)
	case Undoing:
		m.applyUndoing(r, rec)
	case Undone:
		m.applyUndone(r, rec)
	case Continued:
		m.endAttempt(r, 0)
		s.Status = Complete
		r.done++
		r.more().replacedBy = rec.Other
		r.applyTold() // the next run tells the parent
		m.setOutcome(r, Succeeded, 0, rec.At)
	}
}

// applyEnd applies the end of an attempt.
func (m *Machine) applyEnd(r *Run, rec *Record) {
	s := r.Step(rec.Step)
	m.endAttempt(r, rec.Step)
	isOp := r.flow != nil && rec.Step > 0
	switch rec.Kind { //nolint:exhaustive // the others end no attempt
	case Done:
		if isOp {
			m.endOp(r, rec)
			break
		}
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
		switch m.waitOrFail(r, rec); {
		case r.flow == nil || rec.Reason == 0:
			setMemo(r, rec)
		case !isOp:
			r.flow.redo = bytes.Clone(rec.Data)
		}
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
	if r, known := m.Run(rec.Run); known {
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
		ID: rec.Run, Def: d, body: &body{Input: bytes.Clone(rec.Data)}, Created: rec.At,
		Deadline: rec.Deadline, Steps: make([]StepState, len(d.Steps)), timer: noTimer, delayed: rec.Delay > 0,
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
	if d.Flow {
		r.flow = new(flow)
	}
	if err := r.readMore(rec); err != nil {
		return err
	}
	m.add(r)
	m.claimKey(r)
	if m.snapshot != nil {
		r.snap = m.snapshot.no // the snapshot need not have it: the replayed log starts the run
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

// readMore reads what the record of a start has beside the outputs: see Start.outputs.
func (r *Run) readMore(rec *Record) (err error) {
	n := len(r.Def.Steps) + 1
	if len(rec.Outputs) > n && r.flow != nil {
		if r.flow.inbox, err = readInbox(rec.Outputs[n]); err != nil {
			return err
		}
	}
	if len(rec.Outputs) > n+1 {
		r.more().parent, err = readParent(rec.Outputs[n+1])
	}
	return err
}

func (m *Machine) applyBegun(r *Run, rec *Record) {
	s := r.Step(rec.Step)
	m.timers.unset(r, int32(rec.Step))
	m.dequeue(r, rec.Step)
	s.Status, s.At = Running, rec.At
	s.Attempt++
	if s.First == 0 {
		s.First = rec.At
	}
	r.running++
	r.StepDef(rec.Step).queue.Running++
	if !r.active {
		r.active = true
		r.Def.workflow.Active++
		m.requeue(r)
	}
}

func (m *Machine) applyRetry(r *Run, rec *Record) {
	if r.flow != nil {
		m.retryFlow(r, rec)
	}
	r.Outcome, r.Reason, r.Ended, r.Failing, r.retried = Undecided, 0, 0, false, true
	r.Deadline = rec.Deadline
	if r.Deadline != 0 {
		m.timers.set(r, deadline, r.Deadline)
	}
	for n, s := range r.Live() {
		switch s.Status {
		case Exhausted:
			s.forgive()
			m.wait(r, n, rec.At)
		case Waiting:
			s.First = 0 // the time in which the run was dead does not count for the total timeout
			clock := s.clock
			m.wait(r, n, max(s.At, rec.At))
			s.clock = clock
		case Blocked:
			if n < len(r.Def.Steps) && needsMet(r, n) { // and no operation that waits for a signal
				m.wait(r, n, rec.At)
			}
		case Running, Complete, NoHandler:
		}
	}
}

// applyJumped applies a change of the wall clock: it moves all times by the same amount, so that
// the rest of each wait stays the same. It does not move times that a caller has set as points of
// the wall clock.
func (m *state) applyJumped(rec *Record) {
	by, was := rec.Delay, rec.At-int64(rec.Delay)
	for _, r := range m.all {
		if r.knows(m.seq) || r.Finished() {
			continue
		}
		if start := endOfWait(r); start > was && !r.begun() && !r.delayed {
			// The run's time begins with its start, which is still in the future, or is
			// now because of the jump.
			move(&r.Deadline, time.Duration(max(rec.At-start, 0)))
		} else {
			move(&r.Deadline, by)
		}
		for i := range r.Steps {
			s := &r.Steps[i]
			began := s.Attempt > 0 || i > 0 && r.flow != nil || r.delayed // the wait is not for a start at a point of the wall clock
			move(&s.First, by)
			if s.Status == Running || s.Status == NoHandler || s.Status == Waiting && (s.At <= was || !s.clock && began) {
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

// move adds a duration to a time, without overflow. 0 means no time, and stays 0.
func move(t *int64, by time.Duration) {
	switch {
	case *t == 0:
	case by > 0:
		*t = later(*t, by)
	default:
		*t += int64(by)
	}
}

// applyPurged applies a record of kind Purged. It removes the keys of runs that finished before
// rec.At, the runs that died before rec.Due unless rec.Data has their ids, and the definitions
// that were last used before both times. It must not depend on which finished runs are in memory,
// because that is not recorded. A dead run that an earlier record of the same entry has changed stays
// until the next purge: if it is written to a snapshot when it is removed, a replay applies the whole
// entry to it again.
func (m *state) applyPurged(rec *Record) {
	m.ended = slices.DeleteFunc(m.ended, func(e expiry) bool {
		if e.at >= rec.At {
			return false
		}
		if r := m.byID(m.keys[e.key].id); r != nil && r.knows(m.seq) {
			return false // the snapshot has a later state: the run ends after this entry
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
		case r.Closed() && !r.Finished() && r.Ended < rec.Due && r.version < m.seq && !keep[r.ID] && !r.IsNeeded():
			dead = append(dead, r)
		case known || !r.Finished() || r.IsNeeded():
			r.Def.open = true
		}
	}
	for _, r := range dead {
		if k := m.keys[r.Key]; k.id == r.ID {
			delete(m.keys, r.Key)
		}
		m.remove(r)
		m.purged = append(m.purged, r.ID)
	}
	m.definitionSet.purge(min(rec.At, rec.Due))
}

// Due handles the timers that are due, at most the given number: it removes each timer and puts
// its step into its queue. It returns the runs that have timed out, which the caller must record.
// It also returns the sleeps and the waits for signals that are over, which the caller must record
// by Slept. The move of a step into its queue is not recorded, because it follows from the step's due time. An attempt of
// an operation needs the function of its run: if that is suspended, it is due instead.
func (m *Machine) Due(now int64, most int) (expired []*Run, slept []Sleep) {
	for range most {
		t, ok := m.timers.first()
		if !ok || t.due > now {
			break
		}
		m.timers.unset(t.run, t.step)
		if t.step == deadline {
			expired = append(expired, t.run)
			continue
		}
		switch r := t.run; {
		case r.flow == nil || t.step == 0 || r.Steps[0].Status == Running && r.StepDef(int(t.step)) != &sleepStep:
			m.enqueue(r, int(t.step))
		case r.StepDef(int(t.step)) == &sleepStep:
			slept = append(slept, Sleep{r, int(t.step)})
		default:
			m.CallAgain(r)
		}
		m.updateCounts(t.run)
	}
	return expired, slept
}
