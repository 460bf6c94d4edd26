package admission

import (
	"math"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// isolated is the suspect of a shard that runs alone, or waits until it can.
type isolated struct {
	run    machine.ID
	step   int
	waits  bool          // it waits until no other attempt runs, and no other attempt begins
	late   int64         // while it waits: when it begins even if other attempts run
	runs   *Ticket       // of its attempt or call; nil if it has not begun
	lasted time.Duration // length of its trial
}

// ends returns when the trial is over. It reads the begin of the attempt from the state, which
// is adjusted when the clock is set.
func (i *isolated) ends(m *machine.Machine) int64 {
	run, ok := m.Run(i.run)
	if !ok {
		return 0
	}
	s := run.Step(i.step)
	if s == nil {
		return 0 // an operation that has ended
	}
	return s.At + int64(i.lasted)
}

// NextSuspect returns the first suspect that the limits of its workflow allow to begin, and that does not
// have to run alone. ready reports whether the code of a step is there.
func (a *Admission) NextSuspect(m *machine.Machine, ready func(*machine.Run, int) bool) (run *machine.Run, step int, reason Reason) {
	if a.full {
		return nil, 0, Place
	}
	run, step, ok := a.firstSuspect(m, ready)
	switch {
	case !ok:
		a.shared.quarantine.withdraw(a.shard)
		return nil, 0, Empty
	case machine.NeedsIsolation(run, step):
		a.shared.quarantine.wantIsolation(a.shard)
		return nil, 0, Alone
	}
	return run, step, Begin
}

func (a *Admission) firstSuspect(m *machine.Machine, ready func(*machine.Run, int) bool) (run *machine.Run, step int, ok bool) {
	for run, step := range m.Suspects() {
		q := run.StepDef(step).Queue()
		runs, attempts := a.limits(q.Workflow.Name, q.Step)
		if attempts > 0 && q.Running >= attempts || runs > 0 && !run.HasPlace() && q.Workflow.Active >= runs {
			continue
		}
		if ready(run, step) {
			return run, step, true
		}
	}
	return nil, 0, false
}

// TakeSuspect takes a ticket for a suspect that does not have to run alone.
func (a *Admission) TakeSuspect(run *machine.Run, step int) (t Ticket, reason Reason) {
	t = Ticket{shared: a.shared, isCall: run.IsFunction(step)}
	if !a.takePlace(&t) {
		return t, Place
	}
	if t.trial = a.shared.quarantine.try(a.shard, machine.Losses(run, step)); t.trial == nil {
		t.places().give(1)
		return t, Suspect
	}
	return t, Begin
}

// takePlace takes a place for a suspect. It returns false if none is free.
func (a *Admission) takePlace(t *Ticket) bool {
	if t.isCall {
		// It takes a place even if none is free: functions that have places may wait for
		// operations that can't begin before this suspect.
		t.places().reclaim()
		return true
	}
	if !t.places().take(a.shard) {
		a.full = true
		return false
	}
	return true
}

// NextAlone returns the next suspect if it has to run alone. It ends the wait of an earlier one that was
// canceled, or that another one has overtaken. busy says that nothing can begin in this turn.
func (a *Admission) NextAlone(m *machine.Machine, ready func(*machine.Run, int) bool, busy bool) (run *machine.Run, step int, ok bool) {
	i := &a.isolated
	run, step, ok = a.firstSuspect(m, ready)
	ok = ok && machine.NeedsIsolation(run, step) && !busy
	if i.waits && (!ok || i.run != run.ID || i.step != step) {
		*i = isolated{}
		a.shared.quarantine.release(a.shard)
	}
	return run, step, ok && i.runs == nil
}

// HasSurvived reports whether a suspect that ran alone is over, and its isolation ends when the turn is
// stored: other attempts get a chance to begin before the next suspect runs alone.
func (a *Admission) HasSurvived() bool { return a.survived != nil }

// TakeAlone takes a ticket for a suspect that has to run alone, once no other attempt runs. Until then no
// other attempt begins. If the running attempts take too long, the suspect begins beside them, and alone
// is false: if it is lost then, it does not count as lost alone.
func (a *Admission) TakeAlone(run *machine.Run, step int, now int64) (t Ticket, alone bool, reason Reason) {
	i, q := &a.isolated, &a.shared.quarantine
	t = Ticket{shared: a.shared, isCall: run.IsFunction(step)}
	if !q.isolate(a.shard) {
		return t, false, Suspect
	}
	if !i.waits {
		*i = isolated{run: run.ID, step: step, waits: true, late: now + int64(machine.Isolation(run, step))}
	}
	if t.trial, alone = q.tryAlone(a.shard, now >= i.late); t.trial == nil {
		return t, false, Alone
	}
	if !a.takePlace(&t) {
		q.count(-1)
		i.late = max(i.late, now+int64(time.Second))
		return t, false, Place
	}
	return t, alone, Begin
}

// BeganAlone notes that the suspect of TakeAlone has begun, with this ticket.
func (a *Admission) BeganAlone(t *Ticket, lasts time.Duration) {
	a.isolated = isolated{run: a.isolated.run, step: a.isolated.step, runs: t, lasted: lasts}
	a.shared.quarantine.withdraw(a.shard)
}

// EndIsolation ends the isolation of an attempt that has run alone for long enough at the time now, or has
// ended. It calls record in the first case, and other attempts begin when that is stored: see Stored.
func (a *Admission) EndIsolation(m *machine.Machine, now int64, record func()) {
	i := &a.isolated
	switch {
	case i.runs == nil:
	case i.runs.isOver():
		*i = isolated{}
	case now >= i.ends(m):
		record()
		a.survived = i.runs.trial
		*i = isolated{}
	}
}

// Stored notes that the turn is stored: the trial of an attempt that has run alone for long enough ends.
func (a *Admission) Stored() {
	a.survived.end()
	a.survived = nil
}

// NextDue returns when the wait or the trial of a suspect that runs alone ends; math.MaxInt64 if there is
// neither.
func (a *Admission) NextDue(m *machine.Machine) int64 {
	switch i := &a.isolated; {
	case i.waits:
		return i.late
	case i.runs != nil:
		return i.ends(m)
	}
	return math.MaxInt64
}

// LeaveQuarantine removes the shard from the quarantine, so that other shards can begin attempts.
func (a *Admission) LeaveQuarantine() {
	if a.isolated.waits {
		a.isolated = isolated{}
		a.shared.quarantine.release(a.shard)
	}
	a.shared.quarantine.removeShard(a.shard)
}
