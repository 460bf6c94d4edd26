package machine

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/tideover/tideover/engine/info"
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
	switch rec.Kind { //nolint:exhaustive // the others are about a run in memory
	case Opened:
		applyOpened(m.state, rec)
	case Defined:
		return applyDefined(m.state, rec)
	case Started:
		return applyStarted(m.state, rec)
	case Jumped:
		applyJumped(m.state, rec)
	case Purged:
		applyPurged(m.state, rec)
	case Cron:
		applyCron(m.state, rec)
	case Halted:
		applyHalted(m.state, rec)
	default:
		return applyToRun(m.state, rec)
	}
	return nil
}

// applyToRun applies a record to its run, which is in memory.
func applyToRun(m *state, rec *Record) error {
	r, ok := m.Run(rec.Run)
	if !ok {
		return fmt.Errorf("%w: %s of the unknown run %s", ErrEncoding, rec.Kind, rec.Run)
	}
	if !r.Def.Flow || rec.Step > 0 || rec.Kind != Begun { // the call of a function is no attempt
		countTotals(&r.Def.workflow.Totals, rec)
	}
	if rec.Kind == Called && rec.Hash != (Hash{}) {
		m.use(rec.Hash, rec.At)
	}
	if knows(r, m.seq) {
		return nil
	}
	if err := m.warm(r); err != nil {
		return err
	}
	if err := applyRun(m, r, rec); err != nil {
		return err
	}
	if r.extra != nil && r.running == 0 {
		r.extra.until = 0 // all attempts that were postponed have ended
	}
	m.giveUpPlace(r)
	m.touch(r)
	return nil
}

// applyRun changes a run as the record says, and adds the record to its history.
func applyRun(m *state, r *Run, rec *Record) error {
	if rec.Kind == Called { // the step is new
		err := applyCalled(m, r, rec)
		if err == nil {
			appendHistory(r, rec)
		}
		return err
	}
	if !isLive(r, rec.Step) {
		return fmt.Errorf("%w: %s of step %d in run %s, which has no such step", ErrEncoding, rec.Kind, rec.Step, rec.Run)
	}
	if rec.Kind != Progress {
		appendHistory(r, rec)
	}
	switch rec.Kind { //nolint:exhaustive // the others are of a user, or of a flow
	case Begun:
		applyBegun(m, r, rec)
	case Done, Failed, Limited, Snoozed, Lost, Released, Late:
		applyEnd(m, r, rec)
	case Progress:
		setProgress(r, rec.Step, bytes.Clone(rec.Data))
	case Parked:
		endAttempt(m, r, rec.Step)
		m.timers.unset(r, int32(rec.Step)) // in a replay its timer may still be set
		m.dequeue(r, rec.Step)
		r.Step(rec.Step).Status = NoHandler
		m.park(r, rec.Step)
	case Unparked:
		m.unpark(r, rec.Step)
		m.wait(r, rec.Step, rec.At)
	case Expired:
		m.setOutcome(r, Dead, retry.StopTimeout, rec.At)
	default:
		if rec.Kind >= Called {
			applyFlow(m, r, rec)
		} else {
			applyCommand(m, r, rec)
		}
	}
	return nil
}

// applyCommand applies what a user has decided.
func applyCommand(m *state, r *Run, rec *Record) {
	switch rec.Kind { //nolint:exhaustive // the others are applied elsewhere
	case Cancel:
		m.setOutcome(r, Canceled, retry.StopCanceled, rec.At)
	case Retry:
		applyRetry(m, r, rec)
	case Woken:
		m.wait(r, rec.Step, rec.At)
	case Postponed:
		if r.Step(rec.Step).Status == Running {
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
			m.resetLosses(r, n, s, (*StepState).forgive)
		}
	case Replaced:
		r.more().replacedBy = rec.other
		m.retire(r, rec.At)
	}
}

// countTotals adds the record to the totals. Totals must depend only on records, and not on the
// state of runs: a snapshot has the totals of its beginning, but later states of the runs.
func countTotals(t *info.Totals, rec *Record) {
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

// applyEnd applies the end of an attempt.
func applyEnd(m *state, r *Run, rec *Record) {
	s := r.Step(rec.Step)
	endAttempt(m, r, rec.Step)
	switch rec.Kind { //nolint:exhaustive // the others end no attempt
	case Done:
		if r.flow != nil && rec.Step > 0 {
			endOp(m, r, rec)
			break
		}
		s.Status, s.Lost = Complete, 0
		setOutput(r, rec.Step, bytes.Clone(rec.Data))
		r.done++
		m.startNext(r, rec.Step, rec.At)
	case Failed:
		applyFailed(m, r, rec)
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
		waitOrFail(m, r, rec)
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

func applyFailed(m *state, r *Run, rec *Record) {
	s := r.Step(rec.Step)
	if healthy(r, rec.Step, rec.At) {
		s.Spent, s.First = 0, s.At
	}
	s.Spent++
	s.Lost = 0
	s.Prev = rec.Prev
	switch waitOrFail(m, r, rec); {
	case r.flow == nil || rec.Reason == 0:
		setMemo(r, rec)
	case rec.Step == 0:
		r.flow.redo = bytes.Clone(rec.Data)
	}
}

func applyStarted(m *state, rec *Record) error {
	if r, known := m.Run(rec.Run); known {
		if knows(r, m.seq) {
			countTotals(&r.Def.workflow.Totals, rec)
			return nil
		}
		return fmt.Errorf("%w: run %s starts twice", ErrEncoding, rec.Run)
	}
	d, ok := m.defs[rec.Hash]
	if !ok {
		return fmt.Errorf("%w: run %s has an unknown definition", ErrEncoding, rec.Run)
	}
	r, err := startedRun(d, rec)
	if err != nil {
		return err
	}
	m.add(r)
	m.claimKey(r)
	if m.snapshot != nil {
		r.snap = m.snapshot.no // the snapshot need not have it: the replayed log starts the run
	}
	m.use(rec.Hash, rec.At)
	countTotals(&d.workflow.Totals, rec)
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

// startedRun returns the run that a record starts.
func startedRun(d *Definition, rec *Record) (r *Run, err error) {
	source, key, _ := strings.Cut(rec.Text, "\x00")
	steps := len(d.Steps)
	r = &Run{
		ID: rec.Run, Def: d, Key: key, body: &body{Input: bytes.Clone(rec.Data)}, Created: rec.At,
		Deadline: rec.Deadline, Steps: make([]StepState, steps), timer: noTimer, delayed: rec.Delay > 0,
	}
	if source != "" || !rec.other.IsZero() {
		r.extra = &extra{source: source, previous: rec.other}
	}
	for i := range r.Steps {
		r.Steps[i].timer = noTimer
	}
	for i, out := range rec.outputs[:min(steps, len(rec.outputs))] {
		if out != nil {
			r.Steps[i].Status = Complete
			setOutput(r, i, bytes.Clone(out))
			r.done++
		}
	}
	if d.Flow {
		r.flow = new(Flow)
		if r.flow.inbox, err = readInbox(partOf(rec.outputs, steps+1)); err != nil {
			return nil, err
		}
	}
	if parent := partOf(rec.outputs, steps+2); len(parent) > 0 {
		if r.more().parent, err = readParent(parent); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func applyRetry(m *state, r *Run, rec *Record) {
	if r.flow != nil {
		retryFlow(m, r, rec)
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

// waitOrFail applies the decision after a failed or lost attempt: the step waits, or gives up.
func waitOrFail(m *state, r *Run, rec *Record) {
	switch {
	case rec.Reason != 0 && r.flow != nil && rec.Step > 0:
		endOp(m, r, rec)
	case rec.Reason != 0:
		r.Step(rec.Step).Status = Exhausted
		if !r.Failing {
			r.Failing, r.Reason = true, rec.Reason
			m.stopWaits(r)
		}
	default:
		m.wait(r, rec.Step, rec.Due)
	}
}
