package engine

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
	running  int                 // running attempts of the process
	trials   int                 // running suspects that are on trial and not alone
	isolated *shard              // the shard whose suspect runs alone, or waits until it can; nil if there is none
	wants    map[*shard]int      // losses of the suspect that each shard would begin next
	waiting  map[*shard]struct{} // shards to wake when another attempt may begin
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
func (q *quarantine) enter(sh *shard) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isolated != nil {
		q.wait(sh)
		return false
	}
	q.running++
	return true
}

// reenter counts an attempt again that lendPlaces has removed from the count. The attempt
// begins now.
func (q *quarantine) reenter() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running++
}

// exit removes an attempt from the count, because it has ended or does not begin.
func (q *quarantine) exit() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running--; q.running == 0 && q.isolated != nil {
		q.wake()
	}
}

// try admits a suspect with this many losses. If it can't begin now, try returns nil, and the
// shard is woken later.
func (q *quarantine) try(sh *shard, losses int) *trial {
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
func (q *quarantine) isolate(sh *shard) bool {
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
func (q *quarantine) tryAlone(sh *shard, late bool) (t *trial, alone bool) {
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
func (q *quarantine) withdraw(sh *shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	losses, wanted := q.wants[sh]
	delete(q.wants, sh)
	if wanted && losses < wantAlone {
		q.wake()
	}
}

// wantIsolation notes that the next suspect of the shard has to run alone.
func (q *quarantine) wantIsolation(sh *shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.want(sh, wantAlone)
}

// release ends the isolation for a suspect of the shard that has not begun, so that other
// attempts can begin.
func (q *quarantine) release(sh *shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isolated == sh {
		q.isolated = nil
		q.wake()
	}
}

// removeShard removes a shard that can't begin attempts: it has stopped, or it can't store.
func (q *quarantine) removeShard(sh *shard) {
	q.withdraw(sh)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, sh)
}

// want notes the losses of the suspect that the shard would begin next. It wakes the waiting
// shards only if the number has grown, so that one of them may come first now: otherwise two
// waiting shards would wake each other forever. The caller of want and of the methods below
// must hold the lock.
func (q *quarantine) want(sh *shard, losses int) {
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

func (q *quarantine) wait(sh *shard) { q.waiting[sh] = struct{}{} }

// wake wakes all waiting shards, so that they try again.
func (q *quarantine) wake() {
	for sh := range q.waiting {
		sh.wake()
	}
	clear(q.waiting)
}

// suspects begins the attempts of a shard's suspects when the quarantine of the process
// admits them. It is part of the dispatcher.
type suspects struct {
	d        *dispatcher
	isolated isolated
	survived *trial // trial of a suspect that ran alone, to end when the turn is stored; nil if there is none
}

// isolated is the suspect of a shard that runs alone, or waits until it can.
type isolated struct {
	key    attemptKey
	waits  bool          // it waits until no other attempt runs, and no other attempt begins
	late   int64         // while it waits: when it begins even if other attempts run
	runs   *attempt      // its attempt; nil if it has not begun
	lasted time.Duration // length of its trial
}

// next returns when the wait or the trial of the suspect ends; math.MaxInt64 if there is
// neither.
func (i *isolated) next(m *machine.Machine) int64 {
	switch {
	case i.waits:
		return i.late
	case i.runs != nil:
		return i.ends(m)
	}
	return math.MaxInt64
}

// ends returns when the trial is over. It reads the begin of the attempt from the state, which
// is adjusted when the clock is set.
func (i *isolated) ends(m *machine.Machine) int64 {
	run, ok := m.Run(i.key.run)
	if !ok {
		return 0
	}
	s := run.Step(i.key.step)
	if s == nil {
		return 0 // an operation that has ended
	}
	return s.At + int64(i.lasted)
}

// dispatch begins attempts of suspects that do not have to run alone.
func (s *suspects) dispatch() {
	d, sh := s.d, s.d.sh
	for !d.full && !d.o.turn.isFull() {
		run, step, ok := s.next()
		switch {
		case !ok:
			sh.quarantine.withdraw(sh)
			return
		case run.NeedsIsolation(step):
			sh.quarantine.wantIsolation(sh)
			return
		}
		begin, missing := s.launcher(run, step)
		if begin == nil {
			missing()
			continue
		}
		if !s.takePlace(run, step) {
			return
		}
		trial := sh.quarantine.try(sh, run.Losses(step))
		if trial == nil {
			s.givePlace(run, step)
			return
		}
		rec := d.o.m.Attempt(run, step, d.o.turn.now)
		begin(trial, &rec)
	}
}

// launcher returns a function that begins an attempt of a step, or calls the function of a flow.
// If it is nil, missing handles that the code is missing.
func (s *suspects) launcher(run *machine.Run, step int) (begin func(*trial, *machine.Record), missing func() bool) {
	d := s.d
	if run.IsFunction(step) {
		w := d.sh.handlers.function(run.StepDef(0).Handler, run.Def.Name)
		if w == nil {
			return nil, func() bool { return d.parkStep(run, 0) }
		}
		return func(t *trial, rec *machine.Record) { d.callFunction(run, w, t, rec) }, nil
	}
	handler, missing := d.handlerOf(run, step)
	if handler == nil {
		return nil, missing
	}
	return func(t *trial, rec *machine.Record) { d.launch(run, step, handler, t, rec) }, nil
}

// takePlace takes a place for an attempt, or for a call of a function. It returns false if none
// is free.
func (s *suspects) takePlace(run *machine.Run, step int) bool {
	sh := s.d.sh
	if run.IsFunction(step) {
		// It takes a place even if none is free: functions that have places may wait for
		// operations that can't begin before this suspect.
		sh.functions.reclaim()
		return true
	}
	if !sh.places.take(sh) {
		s.d.full = true
		return false
	}
	return true
}

func (s *suspects) givePlace(run *machine.Run, step int) {
	if run.IsFunction(step) {
		s.d.sh.functions.give()
	} else {
		s.d.sh.places.give()
	}
}

// next returns the first suspect that the limits of its workflow allow to begin.
func (s *suspects) next() (run *machine.Run, step int, ok bool) {
	sh, o := s.d.sh, s.d.o
	early := o.isRegistering()
	for run, step := range o.m.Suspects() {
		q := run.Queue(step)
		runs, attempts := sh.handlers.limits(q.Workflow.Name, q.Step)
		if attempts > 0 && q.Running >= attempts || runs > 0 && !run.HasPlace() && q.Workflow.Active >= runs {
			continue
		}
		if early && !sh.handlers.hasCode(run, step) {
			continue
		}
		return run, step, true
	}
	return nil, 0, false
}

// isolate begins the attempt of a suspect that has to run alone, once no other attempt runs.
// Until then no other attempt begins. If the running attempts take too long, the attempt begins
// beside them: if it is lost then, it does not count as lost alone.
func (s *suspects) isolate() {
	d, sh := s.d, s.d.sh
	t, i, q := &d.o.turn, &s.isolated, &sh.quarantine
	run, step, ok := s.next()
	ok = ok && run.NeedsIsolation(step) && !t.isFull()
	if i.waits && (!ok || i.key != attemptKey{run.ID, step}) {
		*i = isolated{}
		q.release(sh) // it was canceled, or another one comes first
	}
	if !ok || i.runs != nil {
		return
	}
	if s.survived != nil {
		d.more = true // try again in the next turn, after other attempts had a chance to begin
		return
	}
	begin, missing := s.launcher(run, step)
	if begin == nil {
		missing()
		return
	}
	if !q.isolate(sh) {
		return
	}
	lasts := run.Isolation(step)
	if !i.waits {
		*i = isolated{key: attemptKey{run.ID, step}, waits: true, late: t.now + int64(lasts)}
	}
	trial, alone := q.tryAlone(sh, t.now >= i.late)
	if trial == nil {
		return
	}
	if !s.takePlace(run, step) {
		q.exit()
		i.late = max(i.late, t.now+int64(time.Second))
		return
	}
	rec := d.o.m.Attempt(run, step, t.now)
	if alone {
		rec.Delay = lasts
	}
	begin(trial, &rec)
	sh.cfg.Logger.Warn("the process died in the last attempts of a step: its next attempt begins, and no other attempt begins for a while",
		"run", run.ID, "step", run.StepName(step), "lost", run.Losses(step), "alone", alone, "for", lasts)
	*i = isolated{key: i.key, runs: d.running[i.key], lasted: lasts}
	q.withdraw(sh)
}

// endIsolation ends the isolation of an attempt that has run alone for long enough. It records
// an entry first, and other attempts begin when that is stored. The time of the entry shows that
// the attempt was not alone any more if the process dies later.
func (s *suspects) endIsolation() {
	o, i := s.d.o, &s.isolated
	switch {
	case i.runs == nil:
	case s.d.running[i.key] != i.runs:
		*i = isolated{}
	case o.turn.opened >= i.ends(o.m):
		rec, _ := o.purgeRecord(o.turn.now)
		o.turn.must(&rec) // any record will do: only the time of the entry matters
		s.survived = i.runs.trial
		*i = isolated{}
	}
}

// act ends the trial of an attempt that has run alone for long enough. The turn must be stored.
func (s *suspects) act() {
	s.survived.end()
	s.survived = nil
}

// nextDue returns when the wait or the trial of a suspect that runs alone ends.
func (s *suspects) nextDue() int64 { return s.isolated.next(s.d.o.m) }

// leave removes this shard from the quarantine, so that other shards can begin attempts. The
// shard has stopped, or it can't store.
func (s *suspects) leave() {
	sh := s.d.sh
	if s.isolated.waits {
		s.isolated = isolated{}
		sh.quarantine.release(sh)
	}
	sh.quarantine.removeShard(sh)
}
