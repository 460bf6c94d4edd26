package shard

import (
	"fmt"

	"github.com/tideover/tideover/engine/internal/describe"
	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal"
)

// must is record for a decision of the machine, which can't contradict the state. If it does,
// this program has an error: the shard stops before the turn is stored.
func (t *turn) must(rec *machine.Record) {
	t.o.sh.health.broken(t.record(rec))
}

// record adds a record to the entry of the turn and applies it, with the starts of follow-up
// runs. If the entry has no room, it stores the entry first and opens another.
func (t *turn) record(rec *machine.Record) error {
	next, err := t.followUps(rec)
	if err != nil {
		return err
	}
	return t.add(rec, next)
}

// RecordStart records a start in the entry of the record from which it follows: of a child, or of the run that
// continues this one.
func (t *turn) RecordStart(rec machine.Record, s *machine.Start, def *machine.Definition) {
	if t.define(def) == nil { // an error stops the shard
		t.o.sh.health.broken(t.add(&rec, followUps{start: s, def: def}))
	}
}

// add is record for a record whose follow-up runs are known.
func (t *turn) add(rec *machine.Record, next followUps) error {
	o := t.o
	if t.records > 0 && o.entry.Size()+rec.Size()+next.room() > journal.MaxEntry {
		if err := t.commit(); err != nil {
			return err
		}
		t.open()
	}
	if t.records == 0 {
		o.m.Begin(o.seq+1, machine.Header{At: t.now, SinceBoot: int64(o.clock.up)})
	}
	t.records++
	o.entry.Add(rec)
	step := o.events.stepOf(rec, o.m) // before an operation that ends is removed
	if err := o.m.Apply(rec); err != nil {
		// This is an error of the program: the record was decided from the same state.
		return fmt.Errorf("record %s: %w", rec.Kind, err)
	}
	if !rec.Run.IsZero() {
		t.noteConsequences(rec, step)
	}
	if err := t.startFollowUps(rec.Run, next); err != nil {
		return err
	}
	if rec.Ends != machine.Undecided {
		t.o.sh.family.inform(t, rec.Run)
	}
	return nil
}

// noteConsequences notes what to do when a record is stored: publish events, end waits for
// the run, cancel attempts.
func (t *turn) noteConsequences(rec *machine.Record, step eventStep) {
	run, ok := t.o.m.Run(rec.Run)
	if !ok {
		return
	}
	t.o.events.note(rec, run, step)
	switch {
	case run.Closed():
		t.o.sh.dispatcher.calls.Forget(rec.Run)
		if t.o.waiters.count > 0 {
			t.ended = append(t.ended, rec.Run)
		}
	case run.Outcome != machine.Undecided:
		t.o.sh.dispatcher.stopRun(run, flow.ErrRunOver)
	case rec.Kind == machine.Undoing:
		t.o.sh.dispatcher.stopAttempts(run, flow.ErrUndoing, func(n int) bool { return n > 0 && !run.Flow().IsUndo(n) })
		t.o.sh.family.cancelChildren(t, run)
		t.o.sh.dispatcher.calls.BeginUndo(t, run)
	case rec.Kind == machine.Freed:
		t.o.sh.dispatcher.resumed(run)
	case rec.Kind == machine.Held, rec.Kind == machine.Postponed:
		t.o.sh.dispatcher.stopRun(run, ErrPaused)
	}
}

// followUps are the runs to start with a record.
type followUps struct {
	onGiveUp *workflow.Workflow  // nil for none
	start    *machine.Start      // of OnEnd, of the run that continues this one, or of its child; nil for none
	def      *machine.Definition // its definition
}

// followUps returns the follow-up runs to start if the record ends a run. It records their
// definitions first, because these may not fit into one entry together with the record and the
// starts. A definition without a run does no harm.
func (t *turn) followUps(rec *machine.Record) (f followUps, err error) {
	if rec.Ends == machine.Undecided {
		return f, nil
	}
	run, ok := t.o.m.Run(rec.Run)
	if !ok {
		return f, nil
	}
	if w := t.o.sh.process.Handlers.Workflow(run.Def.Name); w != nil && rec.Ends == machine.Dead {
		f.onGiveUp = w.OnGiveUp()
	}
	if f.onGiveUp != nil {
		err = t.define(f.onGiveUp.Def)
	}
	if f.def = run.Def.OnEnd; f.def == nil || err != nil || run.HasEnded() {
		return f, err
	}
	ended, err := describe.Ended(run, rec)
	if err != nil {
		return f, err
	}
	f.start = &machine.Start{Hash: f.def.Hash(), Input: ended, Source: "on-end of " + run.ID.String()}
	return f, t.define(f.def)
}

// room returns the bytes that an entry must have left for the starts of the follow-up runs.
func (f *followUps) room() (n int) {
	const start = 1000 // bytes of a start beside its input
	if f.onGiveUp != nil {
		n += giveUpInput + start
	}
	if f.start != nil {
		n += len(f.start.Input) + len(f.start.Trace) + len(f.start.Inbox) + start
	}
	return n
}

// startFollowUps records the starts of the follow-up runs of a run.
func (t *turn) startFollowUps(id machine.ID, f followUps) error {
	if f.onGiveUp != nil {
		if run, ok := t.o.m.Run(id); ok {
			if err := t.giveUp(run, f.onGiveUp); err != nil {
				return err
			}
		}
	}
	if f.start == nil {
		return nil
	}
	_, _, err := t.StartRun(f.start, f.def)
	return err
}

// giveUpInput is the largest input of a follow-up run that is stored as a whole, in bytes.
// An entry has room for it beside the death of the run.
const giveUpInput = 150 << 10

// giveUp records the start of a follow-up run of the workflow next for a dead run.
func (t *turn) giveUp(run *machine.Run, next *workflow.Workflow) error {
	text, err := describe.GaveUp(run, min(t.o.sh.process.Settings.MaxPayload, giveUpInput))
	if err != nil {
		return fmt.Errorf("input of the follow-up run when %s gives up: %w", run.Def.Name, err)
	}
	if err := t.o.sh.process.Peers.CheckFormat(next.Format()); err != nil {
		// A follow-up run must not be lost. The older member can't open this shard.
		t.o.sh.process.Settings.Logger.Warn("a follow-up run that a member of the cluster can't read was started", "run", run.ID, "workflow", next.Name(), "error", err)
	}
	_, _, err = t.StartRun(&machine.Start{Hash: next.Def.Hash(), Input: text, Source: giveUpSource + run.ID.String()}, next.Def)
	return err
}

// StartRun records the start of a run, and its definition if that is new. If the key belongs to
// an earlier run, it returns the id of that run and true. A run without an id gets one here,
// so that the id contains the time of the record.
func (t *turn) StartRun(s *machine.Start, def *machine.Definition) (id machine.ID, existing bool, err error) {
	o := t.o
	if err := t.define(def); err != nil {
		return id, false, err
	}
	if s.ID.IsZero() {
		s.ID = t.NewID(s.Key)
	} else if _, again := o.m.Run(s.ID); again {
		return s.ID, false, nil
	}
	rec, other, err := o.m.Start(s, t.now)
	if err != nil || !other.IsZero() {
		return other, err == nil, err
	}
	if rec.Size() > journal.MaxEntry-1000 {
		return id, false, fmt.Errorf("%w: the input and the results that are taken over have %d bytes, at most %d can be stored: "+
			"rerun an earlier step, of which fewer results are taken over, or replay the whole run", workflow.ErrTooLarge, rec.Size(), journal.MaxEntry-1000)
	}
	t.must(&rec)
	return s.ID, false, nil
}

// NewID returns an id for a run with the key.
func (t *turn) NewID(key string) machine.ID {
	return machine.NewID(t.now, t.o.random(), t.o.random()).In(t.o.slot(key))
}

// define records a definition, unless it is recorded already.
func (t *turn) define(def *machine.Definition) error {
	rec, fresh := t.o.m.Define(def, t.now)
	if !fresh {
		return nil
	}
	err := t.record(&rec)
	t.o.sh.health.broken(err)
	return err
}
