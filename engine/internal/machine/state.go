package machine

import (
	"bytes"
	"slices"

	"github.com/tideover/tideover/retry"
)

// state is what the log of a shard folds to: its runs, and where each of them waits.
// Each part has its own fields and methods; those of state itself keep the parts
// consistent with each other.
type state struct {
	seq       uint64 // the entry applied last
	at        int64  // of it
	sinceBoot int64
	boot      string
	schedules map[string]*Schedule

	snapshot  *Snapshot // the one that is being written; nil means none
	snapshots uint32    // begun so far

	runIndex
	definitionSet
	queueSet
	parkedSet
	changeSet
	pageStore
	timers
}

func newState() *state {
	s := &state{
		schedules:     map[string]*Schedule{},
		runIndex:      runIndex{runs: map[ID]*Run{}, keys: map[string]keyed{}},
		definitionSet: definitionSet{defs: map[Hash]*Definition{}, used: map[Hash]int64{}, workflows: map[string]*Workflow{}},
		parkedSet:     parkedSet{parked: map[string]map[place]struct{}{}},
	}
	s.definitions = &s.definitionSet
	return s
}

// touch marks the run as changed by the present entry.
func (m *state) touch(r *Run) {
	r.version, r.restored = m.seq, false
	m.markChanged(r)
	m.updateCounts(r)
}

// updateCounts keeps the counts of runs by state.
func (m *state) updateCounts(r *Run) {
	if now := r.State(); now != r.shown {
		w := r.Def.workflow
		w.Counts[r.shown]--
		w.Counts[now]++
		r.shown = now
		m.markChanged(r)
	}
}

// add puts the run into memory.
func (m *state) add(r *Run) {
	m.insert(r)
	r.Def.runs++
	r.shown = r.State()
	r.Def.workflow.Counts[r.shown]++
}

// remove removes the run from memory.
func (m *state) remove(r *Run) {
	if m.snapshot != nil {
		m.snapshot.writeRemoved(r)
	}
	m.timers.unset(r, deadline)
	for i := range r.Steps {
		m.timers.unset(r, int32(i))
		m.dequeue(r, i)
		m.unpark(r, i)
	}
	m.drop(r)
	r.Def.runs--
	r.Def.workflow.Counts[r.shown]--
}

// install puts a restored run into memory, with its timers.
func (m *state) install(r *Run) {
	r.restored = true
	m.add(r)
	for i := range r.Steps {
		s := &r.Steps[i]
		switch s.Status {
		case Running:
			r.Def.Steps[i].queue.Running++
		case Complete:
			r.done++
		case NoHandler:
			m.park(r, i)
		case Waiting:
			if r.waits() {
				m.timers.set(r, int32(i), s.At)
			}
		case Blocked, Exhausted:
		}
	}
	if r.Outcome == Undecided && r.Deadline != 0 {
		m.timers.set(r, deadline, r.Deadline)
	}
	if r.active = r.active && r.begun() && !r.Closed(); r.active {
		r.Def.workflow.Active++
	}
	switch {
	case !r.Finished():
		m.claimKey(r)
	case r.version > m.seq: // else the state has its key and when that expires
		m.retire(r, lastRecorded(r))
	}
	if r.Finished() {
		m.Change(r)
	}
	m.updateCounts(r)
}

// endIfDone ends the run if nothing is left to do, or to wait for.
func (m *state) endIfDone(r *Run, at int64) {
	switch {
	case r.running > 0:
	case r.Outcome != Undecided:
		m.close(r, at)
	case int(r.done) == len(r.Steps):
		m.setOutcome(r, Succeeded, 0, at)
	case r.Failing:
		m.setOutcome(r, Dead, r.Reason, at)
	}
}

// setOutcome gives the run its outcome. It is closed when its last attempt has ended.
func (m *state) setOutcome(r *Run, o Outcome, why retry.Reason, at int64) {
	r.Outcome, r.Reason, r.Ended, r.Held = o, why, at, false
	m.stopWaits(r)
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

// giveUpPlace gives the place of a run that is paused, or waits for a handler, to
// another run. It needs a place again to go on.
func (m *state) giveUpPlace(r *Run) {
	parked := func(s StepState) bool { return s.Status == NoHandler }
	if !r.active || r.running > 0 || !r.Held && !slices.ContainsFunc(r.Steps, parked) {
		return
	}
	r.active = false
	r.Def.workflow.Active--
	m.requeue(r)
}

// close ends the work on a run that has its outcome.
func (m *state) close(r *Run, at int64) {
	if r.active {
		r.active = false
		r.Def.workflow.Active--
	}
	if r.Outcome != Dead {
		m.retire(r, at)
	}
}

// retire lets the key and the definition of a finished run be purged some time later.
func (m *state) retire(r *Run, at int64) {
	m.use(r.Def.hash, at)
	m.expireKey(r, at)
}

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
	return !slices.ContainsFunc(r.Def.Steps[step].needs, func(i int) bool { return r.Steps[i].Status != Complete })
}

// changeSet has the runs that the reader of changes has yet to see. The reader is the
// part of the engine that keeps the lists of runs.
type changeSet struct {
	changed []*Run
	purged  []ID
}

// changeMark says of a run whether the reader of changes has yet to see it.
type changeMark struct{ dirty bool }

// Seen records that the reader of changes has the present state of the run.
func (c *changeMark) Seen() { c.dirty = false }

// Dirty reports whether the reader of changes has yet to see the run.
func (c *changeMark) Dirty() bool { return c.dirty }

// Soil makes the run one that the reader of changes has yet to see.
func (c *changeMark) Soil() { c.dirty = true }

// TakeChanged returns the runs that have changed since the last call. Each of
// them is dirty until it was Seen.
func (c *changeSet) TakeChanged() []*Run {
	changed := c.changed
	c.changed = nil
	return changed
}

// TakePurged returns the dead runs that were purged since the last call.
func (c *changeSet) TakePurged() []ID {
	ids := c.purged
	c.purged = nil
	return ids
}

// Behind returns how many runs have changed since the reader of changes saw them.
func (c *changeSet) Behind() int { return len(c.changed) }

// Change makes TakeChanged return the run.
func (c *changeSet) Change(r *Run) {
	r.dirty = true
	c.changed = append(c.changed, r)
}

// markChanged is Change for a run that may be in the set already.
func (c *changeSet) markChanged(r *Run) {
	if !r.dirty {
		c.Change(r)
	}
}

// parkedSet has the steps that wait for a handler, by its name.
type parkedSet struct {
	parked map[string]map[place]struct{}
}

// Parked calls yield with the steps that wait for the handler.
func (s *parkedSet) Parked(handler string, yield func(*Run, int)) {
	for p := range s.parked[handler] {
		yield(p.run, int(p.step))
	}
}

// ParkedHandlers returns how many steps wait for each handler.
func (s *parkedSet) ParkedHandlers() map[string]int {
	n := make(map[string]int, len(s.parked))
	for h, set := range s.parked {
		n[h] = len(set)
	}
	return n
}

func (s *parkedSet) park(r *Run, step int) {
	h := r.Def.Steps[step].Handler
	if s.parked[h] == nil {
		s.parked[h] = map[place]struct{}{}
	}
	s.parked[h][place{r, int32(step)}] = struct{}{}
}

func (s *parkedSet) unpark(r *Run, step int) {
	h := r.Def.Steps[step].Handler
	if set := s.parked[h]; set != nil {
		delete(set, place{r, int32(step)})
		if len(set) == 0 {
			delete(s.parked, h)
		}
	}
}
