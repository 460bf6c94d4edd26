package machine

import "github.com/tideover/tideover/retry"

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
	if !r.active || r.running > 0 || !r.Held && !hasParkedStep(r) {
		return
	}
	r.active = false
	r.Def.workflow.Active--
	m.requeue(r)
}

func hasParkedStep(r *Run) bool {
	for i := range r.Steps {
		if r.Steps[i].Status == NoHandler {
			return true
		}
	}
	return false
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
