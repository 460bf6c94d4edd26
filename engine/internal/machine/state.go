package machine

import (
	"bytes"
	"slices"

	"github.com/tideover/tideover/retry"
)

// state is the state of a shard: its runs, and the timers and queues in which they wait. Each
// embedded part has its own fields and methods. The methods of state itself keep the parts
// consistent with each other.
type state struct {
	seq       uint64 // number of the entry that was applied last
	at        int64  // time of that entry
	sinceBoot int64  // time since boot of that entry
	boot      string // id of the boot of the owner's machine
	schedules map[string]*Schedule

	snapshot  *runWriter // of the snapshot that is being written; nil means none
	snapshots uint32     // number of snapshots that have begun

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
		runIndex:      runIndex{keys: map[string]keyed{}},
		definitionSet: definitionSet{defs: map[Hash]*Definition{}, used: map[Hash]int64{}, workflows: map[string]*Workflow{}},
		parkedSet:     parkedSet{parked: map[string]map[stepRef]struct{}{}},
	}
	s.definitions = &s.definitionSet
	return s
}

// touch marks the run as changed by the current entry.
func (m *state) touch(r *Run) {
	r.version, r.restored = m.seq, false
	m.markChanged(r)
	m.updateCounts(r)
}

// updateCounts updates the counts of runs by state, if the state of the run has changed.
func (m *state) updateCounts(r *Run) {
	if now := r.State(); now != r.shown {
		w := r.Def.workflow
		w.Counts[r.shown]--
		w.Counts[now]++
		r.shown = now
		m.markChanged(r)
	}
}

// add adds a run to the state, without its key.
func (m *state) add(r *Run) {
	m.children = m.children || r.extra.read().parent != nil
	m.insert(r)
	r.Def.runs++
	r.shown = r.State()
	r.Def.workflow.Counts[r.shown]++
}

// remove removes a run from memory. Its key stays.
func (m *state) remove(r *Run) {
	if m.snapshot != nil {
		m.snapshot.writeRemoved(&m.pageStore, r)
	}
	m.timers.unset(r, deadline)
	for n := range r.Live() {
		m.timers.unset(r, int32(n))
		m.dequeue(r, n)
		m.unpark(r, n)
	}
	m.drop(r)
	r.Def.runs--
	r.Def.workflow.Counts[r.shown]--
}

// install adds a run that was restored from a snapshot, with its timers and key.
func (m *state) install(r *Run) {
	r.restored = true
	m.add(r)
	m.installSteps(r)
	if r.Outcome == Undecided && r.Deadline != 0 {
		m.timers.set(r, deadline, r.Deadline)
	}
	if r.active = r.active && hasBegun(r) && !r.Closed(); r.active {
		r.Def.workflow.Active++
	}
	m.installKey(r)
	if r.Finished() {
		m.Change(r)
	}
	m.updateCounts(r)
}

func (m *state) installSteps(r *Run) {
	for n, s := range r.Live() {
		switch s.Status {
		case Running:
			r.StepDef(n).queue.Running++
		case Complete:
			r.done++
		case NoHandler:
			m.park(r, n)
		case Waiting:
			if hasTimers(r) {
				m.timers.set(r, int32(n), s.At)
			}
		case Blocked, Exhausted:
		}
	}
}

func (m *state) installKey(r *Run) {
	switch {
	case !r.Finished() || r.IsNeeded():
		if !r.Continued() { // else the key belongs to the next run
			m.claimKey(r)
		}
	case r.version <= m.seq:
	case r.Continued():
		last, _ := lastTimes(r)
		m.use(r.Def.hash, last)
	default: // it finished after the snapshot began: the stored state does not have the expiry of its key
		last, _ := lastTimes(r)
		m.retire(r, last)
	}
}

// endIfDone gives the run its outcome, or closes it, if no attempt is running and nothing is left
// to do.
func (m *state) endIfDone(r *Run, at int64) {
	switch {
	case r.running > 0:
	case r.Outcome != Undecided:
		m.close(r, at)
	case int(r.done) == len(r.Def.Steps):
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
	for n, s := range r.Live() {
		if s.Status == NoHandler {
			m.unpark(r, n)
			s.Status = Waiting
		}
	}
	if r.running == 0 {
		m.close(r, at)
	}
}

// giveUpPlace stops counting a run that is paused or waits for a handler towards the limit of
// runs, so that another run can begin. To continue, the run must be admitted again.
func (m *state) giveUpPlace(r *Run) {
	parked := func(s StepState) bool { return s.Status == NoHandler }
	if !r.active || r.running > 0 || !r.Held && !slices.ContainsFunc(r.Steps, parked) {
		return
	}
	r.active = false
	r.Def.workflow.Active--
	m.requeue(r)
}

// close closes a run that has its outcome and no running attempts: the run does not count towards
// the limit of runs any more.
func (m *state) close(r *Run, at int64) {
	if r.active {
		r.active = false
		r.Def.workflow.Active--
	}
	switch {
	case r.IsNeeded(): // see retireUnneeded
	case r.Continued(): // its key goes over to the next run
		m.use(r.Def.hash, at)
	case r.Outcome != Dead:
		m.retire(r, at)
	}
}

// retire notes when a run finished, so that its key and its definition can be purged later. A run
// that is needed is retired when it is not needed any more: the last record of a run must say when
// that was.
func (m *state) retire(r *Run, at int64) {
	if r.IsNeeded() {
		return
	}
	m.use(r.Def.hash, at)
	if r.Key != "" {
		m.addExpired(expiry{r.Key, at}, r.ID, r.Def.workflow)
	}
}

// setMemo keeps the memo of an attempt, if it has one, as the progress of the step.
func setMemo(r *Run, rec *Record) {
	if rec.Data != nil {
		setProgress(r, rec.Step, bytes.Clone(rec.Data))
	}
}

// wait makes the step wait until the time. If the run is failing, paused or has ended, its timer
// is set only when the run is retried or resumed.
func (m *state) wait(r *Run, step int, due int64) {
	s := r.Step(step)
	s.Status, s.At, s.clock = Waiting, due, false
	m.dequeue(r, step)
	if hasTimers(r) {
		m.timers.set(r, int32(step), due)
	}
}

// waitFor makes the step wait until rec.Due, and keeps the memo of the record.
func (m *state) waitFor(r *Run, rec *Record) {
	m.wait(r, rec.Step, rec.Due)
	r.Step(rec.Step).clock = rec.Clock
	setMemo(r, rec)
}

// resetLosses resets counters of a step, the lost attempts among them.
func (m *state) resetLosses(r *Run, n int, s *StepState, reset func(*StepState)) {
	suspect := s.queued && s.Lost > 0
	if suspect {
		m.dequeue(r, n)
	}
	if reset(s); suspect {
		m.enqueue(r, n) // as a step without losses
	}
}

// resumeWaits sets the timers of a resumed run again.
func (m *state) resumeWaits(r *Run) {
	for n, s := range r.Live() {
		if s.Status == Waiting && hasTimers(r) {
			m.timers.set(r, int32(n), s.At)
		}
	}
}

// stopWaits removes the steps of a run from the timers and queues.
func (m *state) stopWaits(r *Run) {
	for n := range r.Live() {
		m.timers.unset(r, int32(n))
		m.dequeue(r, n)
	}
}

// startNext makes the steps due that depend on this step and have no other incomplete dependency.
func (m *state) startNext(r *Run, step int, at int64) {
	for _, i := range r.Def.Steps[step].opens {
		if r.Steps[i].Status == Blocked && needsMet(r, i) {
			m.wait(r, i, at)
		}
	}
}

// changeSet has the runs that have changed since the engine last took them, to update its view.
type changeSet struct {
	changed []*Run
	purged  []ID
}

// TakeChanged returns the runs that have changed since the last call. Each of them is dirty
// until Seen is called.
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

// Behind returns the number of runs that TakeChanged would return.
func (c *changeSet) Behind() int { return len(c.changed) }

// Change marks the run as changed and adds it to the runs that TakeChanged returns.
func (c *changeSet) Change(r *Run) {
	r.dirty = true
	c.changed = append(c.changed, r)
}

// markChanged is Change, unless the run is marked already.
func (c *changeSet) markChanged(r *Run) {
	if !r.dirty {
		c.Change(r)
	}
}

// parkedSet has the steps that wait for a handler, by the name of the handler.
type parkedSet struct {
	parked map[string]map[stepRef]struct{}
}

// Parked calls yield with the steps that wait for the handler.
func (s *parkedSet) Parked(handler string, yield func(*Run, int)) {
	for p := range s.parked[handler] {
		yield(p.run, int(p.step))
	}
}

// ParkedHandlers returns the number of steps that wait for each handler.
func (s *parkedSet) ParkedHandlers() map[string]int {
	n := make(map[string]int, len(s.parked))
	for h, set := range s.parked {
		n[h] = len(set)
	}
	return n
}

func (s *parkedSet) park(r *Run, step int) {
	h := r.StepDef(step).Handler
	if s.parked[h] == nil {
		s.parked[h] = map[stepRef]struct{}{}
	}
	s.parked[h][stepRef{r, int32(step)}] = struct{}{}
}

func (s *parkedSet) unpark(r *Run, step int) {
	h := r.StepDef(step).Handler
	delete(s.parked[h], stepRef{r, int32(step)})
	if len(s.parked[h]) == 0 {
		delete(s.parked, h)
	}
}

func applyBegun(m *state, r *Run, rec *Record) {
	s := r.Step(rec.Step)
	m.timers.unset(r, int32(rec.Step))
	m.dequeue(r, rec.Step)
	s.Status, s.At = Running, rec.At
	s.Attempt++
	if s.First == 0 {
		s.First = rec.At
	}
	m.countBegun(r, rec.Step)
}

// endAttempt stops counting the attempt of a step as running.
func endAttempt(m *state, r *Run, step int) {
	if r.Step(step).Status == Running {
		r.running--
		r.StepDef(step).queue.Running--
	}
}

func needsMet(r *Run, step int) bool {
	return !slices.ContainsFunc(r.Def.Steps[step].needs, func(i int) bool { return r.Steps[i].Status != Complete })
}

func setOutput(r *Run, step int, out []byte) { setPart(&r.more().outputs, r, step, out) }

func setProgress(r *Run, step int, p []byte) {
	if r.flow != nil && step > 0 {
		r.flow.ops[r.flow.index(step)].progress = p
		return
	}
	setPart(&r.more().progress, r, step, p)
}

func setPart(parts *[][]byte, r *Run, step int, p []byte) {
	if *parts == nil {
		*parts = make([][]byte, len(r.Def.Steps))
	}
	(*parts)[step] = p
}

// knows reports whether the run came from a snapshot that includes the entry seq already, so
// that a replay must not apply the entry to it again.
func knows(r *Run, seq uint64) bool { return r.restored && r.version >= seq }
