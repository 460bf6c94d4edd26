package admission

import (
	"math"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// quarantine decides when attempts of suspects may begin. A suspect is a step whose last
// attempt was lost because the process died: the attempt may have caused that. A process that
// dies loses the attempts of all its shards, so the shards share the quarantine.
//
// A suspect runs beside few other suspects, and those with the fewest losses begin first. It is
// on trial until it ends or the process has survived it for trialTime. A suspect with many
// losses runs alone: from the moment it is due until its trial is over, no other attempt
// begins.
type quarantine struct {
	mu       sync.Mutex
	running  int                // running attempts of the process
	trials   int                // running suspects that are on trial and not alone
	isolated Shard              // the shard whose suspect runs alone, or waits until it can; nil if there is none
	wants    map[Shard]int      // losses of the suspect that each shard would begin next
	waiting  map[Shard]struct{} // shards to wake when another attempt may begin
}

const (
	trialTime = 5 * time.Second // length of the trial of a suspect that does not run alone
	wantAlone = math.MaxInt     // value of wants for a suspect that has to run alone
)

// trialsAtOnce returns how many suspects may be on trial at the same time when a suspect with
// this many losses begins.
func trialsAtOnce(losses int) int {
	if losses == 1 {
		return 8 // the attempt is most often not the cause of a single loss
	}
	return 2
}

// trial is the trial of a suspect. It is nil for an attempt of a step that is not a suspect.
type trial struct {
	q     *quarantine
	alone bool
	once  sync.Once
	timer *time.Timer
}

// end ends the trial, and wakes the shards that wait for it. Further calls do nothing.
func (t *trial) end() {
	if t == nil {
		return
	}
	t.once.Do(func() {
		t.q.mu.Lock()
		defer t.q.mu.Unlock()
		if t.timer != nil {
			t.timer.Stop()
		}
		if t.alone {
			t.q.isolated = nil
		} else {
			t.q.trials--
		}
		t.q.wake()
	})
}

// enter admits an attempt of a step that is not a suspect. If a suspect runs alone or is about
// to, it returns false, and the shard is woken later.
func (q *quarantine) enter(sh Shard) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isolated != nil {
		q.wait(sh)
		return false
	}
	q.running++
	return true
}

// count adds n attempts to those that run: -1 if one has ended or does not begin, 1 if one begins
// that Ticket.Lend has removed from the count.
func (q *quarantine) count(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running += n; q.running == 0 && q.isolated != nil {
		q.wake()
	}
}

// try admits a suspect with this many losses. If it can't begin now, try returns nil, and the
// shard is woken later.
func (q *quarantine) try(sh Shard, losses int) *trial {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.want(sh, losses); q.isolated != nil || q.trials >= trialsAtOnce(losses) || !q.isNext(losses) {
		q.wait(sh)
		return nil
	}
	q.running++
	q.trials++
	t := &trial{q: q}
	t.timer = time.AfterFunc(trialTime, t.end)
	return t
}

// isolate keeps other attempts from beginning, for a suspect of the shard that has to run
// alone. It returns false if another suspect comes first.
func (q *quarantine) isolate(sh Shard) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isolated == sh {
		return true
	}
	if q.want(sh, wantAlone); q.isolated != nil || !q.isNext(wantAlone) {
		q.wait(sh)
		return false
	}
	q.isolated = sh
	return true
}

// tryAlone admits the suspect for which isolate was called, if no other attempt runs or late is
// true. alone reports whether no other attempt runs. If the suspect can't begin, the trial is
// nil.
func (q *quarantine) tryAlone(sh Shard, late bool) (t *trial, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if alone = q.running == 0; !alone && !late {
		q.wait(sh)
		return nil, false
	}
	q.running++
	return &trial{q: q, alone: true}, alone
}

// withdraw notes that the shard has no suspect to begin.
func (q *quarantine) withdraw(sh Shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	losses, wanted := q.wants[sh]
	delete(q.wants, sh)
	if wanted && losses < wantAlone {
		q.wake()
	}
}

// wantIsolation notes that the next suspect of the shard has to run alone.
func (q *quarantine) wantIsolation(sh Shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.want(sh, wantAlone)
}

// release ends the isolation for a suspect of the shard that has not begun, so that other
// attempts can begin.
func (q *quarantine) release(sh Shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isolated == sh {
		q.isolated = nil
		q.wake()
	}
}

// removeShard removes a shard that can't begin attempts: it has stopped, or it can't store.
func (q *quarantine) removeShard(sh Shard) {
	q.withdraw(sh)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, sh)
}

// want notes the losses of the suspect that the shard would begin next. It wakes the waiting
// shards only if the number has grown, so that one of them may come first now: otherwise two
// waiting shards would wake each other forever. The caller of want and of the methods below
// must hold the lock.
func (q *quarantine) want(sh Shard, losses int) {
	before, wanted := q.wants[sh]
	q.wants[sh] = losses
	if wanted && before < losses {
		q.wake()
	}
}

// isNext reports whether no shard wants to begin a suspect with fewer losses.
func (q *quarantine) isNext(losses int) bool {
	for _, other := range q.wants {
		if other < losses {
			return false
		}
	}
	return true
}

func (q *quarantine) wait(sh Shard) { q.waiting[sh] = struct{}{} }

// wake wakes all waiting shards, so that they try again.
func (q *quarantine) wake() {
	for sh := range q.waiting {
		sh.Wake()
	}
	clear(q.waiting)
}

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

// nextDue returns when the wait or the trial of the suspect ends; math.MaxInt64 if there is neither.
func (i *isolated) nextDue(m *machine.Machine) int64 {
	switch {
	case i.waits:
		return i.late
	case i.runs != nil:
		return i.ends(m)
	}
	return math.MaxInt64
}

// NextSuspect returns the first suspect that the limits of its workflow allow to begin, and that does not
// have to run alone. ready reports whether the code of a step is there.
func (a *Admission) NextSuspect(m *machine.Machine, ready func(*machine.Run, int) bool) (run *machine.Run, step int, ok bool) {
	if a.full {
		return nil, 0, false
	}
	run, step, ok = a.firstSuspect(m, ready)
	switch {
	case !ok:
		a.shared.quarantine.withdraw(a.shard)
	case machine.NeedsIsolation(run, step):
		a.shared.quarantine.wantIsolation(a.shard)
		return nil, 0, false
	}
	return run, step, ok
}

func (a *Admission) firstSuspect(m *machine.Machine, ready func(*machine.Run, int) bool) (run *machine.Run, step int, ok bool) {
	for run, step := range m.Suspects() {
		if a.Limits(run.StepDef(step).Queue(), run).reached() == (Limit{}) && ready(run, step) {
			return run, step, true
		}
	}
	return nil, 0, false
}

// TakeSuspect takes a ticket for a suspect that does not have to run alone.
func (a *Admission) TakeSuspect(run *machine.Run, step int) (t Ticket, ok bool) {
	t = Ticket{shared: a.shared, isCall: run.IsFunction(step)}
	if !a.takePlace(&t) {
		return t, false
	}
	if t.trial = a.shared.quarantine.try(a.shard, machine.Losses(run, step)); t.trial == nil {
		t.places().give(1)
		return t, false
	}
	return t, true
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
func (a *Admission) TakeAlone(run *machine.Run, step int) (t Ticket, alone, ok bool) {
	i, q, now := &a.isolated, &a.shared.quarantine, a.clock.Now()
	t = Ticket{shared: a.shared, isCall: run.IsFunction(step)}
	if !q.isolate(a.shard) {
		return t, false, false
	}
	if !i.waits {
		*i = isolated{run: run.ID, step: step, waits: true, late: now + int64(machine.Isolation(run, step))}
	}
	if t.trial, alone = q.tryAlone(a.shard, now >= i.late); t.trial == nil {
		return t, false, false
	}
	if !a.takePlace(&t) {
		q.count(-1)
		i.late = max(i.late, now+int64(time.Second))
		return t, false, false
	}
	return t, alone, true
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

// LeaveQuarantine removes the shard from the quarantine, so that other shards can begin attempts.
func (a *Admission) LeaveQuarantine() {
	if a.isolated.waits {
		a.isolated = isolated{}
		a.shared.quarantine.release(a.shard)
	}
	a.shared.quarantine.removeShard(a.shard)
}
