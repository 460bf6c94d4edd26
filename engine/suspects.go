package engine

import (
	"math"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// suspects begins the attempts of a shard's suspects, as the quarantine of the process
// allows. It is part of the dispatcher.
type suspects struct {
	d        *dispatcher
	isolated isolated
	survived *trial // the time of an attempt that ran alone is over, when that is stored
}

// isolated is the suspect of a shard that runs alone, or waits until it can.
type isolated struct {
	key    attemptKey
	waits  bool     // others don't begin, and it has not
	late   int64    // when it begins, whether it is alone or not
	runs   *attempt // nil if it has not begun
	lasted time.Duration
}

// next returns when there is something to do about it.
func (i *isolated) next(m *machine.Machine) int64 {
	switch {
	case i.waits:
		return i.late
	case i.runs != nil:
		return i.ends(m)
	}
	return math.MaxInt64
}

// ends returns when its trial is over. The clock may be set meanwhile: the state knows of it.
func (i *isolated) ends(m *machine.Machine) int64 {
	run, ok := m.Run(i.key.run)
	if !ok {
		return 0
	}
	return run.Steps[i.key.step].At + int64(i.lasted)
}

// dispatch begins attempts of suspects that need not run alone.
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
		handler := sh.handlers.handler(run.Def.Steps[step].Handler)
		if handler == nil {
			d.parkStep(run, step)
			continue
		}
		if !sh.places.take(sh) {
			d.full = true
			return
		}
		trial := sh.quarantine.try(sh, run.Losses(step))
		if trial == nil {
			sh.places.give()
			return
		}
		rec := d.o.m.Attempt(run, step, d.o.turn.now)
		d.launch(run, step, handler, trial, &rec)
	}
}

// next returns the suspect that comes first of those which the limits of their workflows
// allow.
func (s *suspects) next() (run *machine.Run, step int, ok bool) {
	sh, o := s.d.sh, s.d.o
	early := o.isRegistering()
	for run, step := range o.m.Suspects() {
		q := run.Queue(step)
		runs, attempts := sh.handlers.limits(q.Workflow.Name, q.Step)
		if attempts > 0 && q.Running >= attempts || runs > 0 && !run.HasPlace() && q.Workflow.Active >= runs {
			continue
		}
		if early && sh.handlers.handler(run.Def.Steps[step].Handler) == nil {
			continue
		}
		return run, step, true
	}
	return nil, 0, false
}

// isolate begins the attempt of a suspect that has to run alone. Others don't begin from here
// on. If those that run take too long, the attempt begins beside them, and proves nothing if it
// is lost.
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
		d.more = true // others may begin after this turn, and it may wait for them then
		return
	}
	handler := sh.handlers.handler(run.Def.Steps[step].Handler)
	if handler == nil {
		d.parkStep(run, step)
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
	if !sh.places.take(sh) {
		q.exit()
		d.full = true
		i.late = max(i.late, t.now+int64(time.Second))
		return
	}
	rec := d.o.m.Attempt(run, step, t.now)
	if alone {
		rec.Delay = lasts
	}
	d.launch(run, step, handler, trial, &rec)
	sh.cfg.Logger.Warn("the process died in the last attempts of a step: others wait while the next one is new",
		"run", run.ID, "step", run.Def.Steps[step].Name, "lost", run.Losses(step), "alone", alone, "for", lasts)
	*i = isolated{key: i.key, runs: d.running[i.key], lasted: lasts}
	q.withdraw(sh)
}

// endIsolation lets others begin after an attempt has run alone for long enough. That is stored
// before: from then on, a process that dies may do so because of another attempt.
func (s *suspects) endIsolation() {
	o, i := s.d.o, &s.isolated
	switch {
	case i.runs == nil:
	case s.d.running[i.key] != i.runs:
		*i = isolated{}
	case o.turn.opened >= i.ends(o.m):
		rec, _ := o.purgeRecord(o.turn.now)
		o.turn.must(&rec) // an entry of this time is what counts
		s.survived = i.runs.trial
		*i = isolated{}
	}
}

// act ends the trial of an attempt that has run alone for long enough, now that it is
// stored.
func (s *suspects) act() {
	s.survived.end()
	s.survived = nil
}

// nextDue returns when there is something to do about a suspect that runs alone.
func (s *suspects) nextDue() int64 { return s.isolated.next(s.d.o.m) }

// leave lets other shards begin attempts, because this one begins none: it has stopped, or
// it can't store.
func (s *suspects) leave() {
	sh := s.d.sh
	if s.isolated.waits {
		s.isolated = isolated{}
		sh.quarantine.release(sh)
	}
	sh.quarantine.leave(sh)
}
