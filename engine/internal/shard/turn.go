package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/describe"
	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// turn is one round of the owner: it handles requests, adds records to an entry, stores the
// entry, and then acts on it.
type turn struct {
	o        *owner
	now      int64         // the current time, in Unix nanoseconds
	opened   int64         // the time of the entry
	records  int           // number of records in the entry
	storing  time.Duration // how long it took to store the last entry
	requests []*request    // requests to answer when the entry is stored
	ended    []machine.ID  // runs that have ended and that callers may wait for
}

// open begins a new entry.
func (t *turn) open() {
	t.records, t.opened = 0, t.now
	t.o.entry.Reset(t.now, int64(t.o.clock.up))
}

// handle handles a message of a function's goroutine, or a request, which is answered when the turn is stored.
func (t *turn) handle(in incoming) {
	if in.message != nil {
		t.o.sh.dispatcher.calls.Handle(t, in.message)
		return
	}
	r := in.request
	if r == nil {
		return
	}
	t.requests = append(t.requests, r)
	switch {
	case r.start != nil:
		r.id, r.existing, r.err = t.StartRun(r.start, r.def)
		// For a known key, the inputs are compared byte by byte if the run is in memory: most such starts are
		// repetitions, and need no comparison as JSON.
		if run, ok := t.o.m.Run(r.id); ok && r.existing && !run.IsCold() {
			r.sameInput = bytes.Equal(run.Input, r.start.Input)
		}
	case r.result != nil:
		t.o.sh.dispatcher.conclude(t, r.result)
	default:
		r.err = r.do(t)
	}
}

// IsFull reports whether the entry is so large that no further attempt may begin.
func (t *turn) IsFull() bool { return t.o.entry.Size() >= fullEntry }

// commit stores the entry. It tries again until that succeeds, and returns an error only if
// it can never succeed or the shard must end.
func (t *turn) commit() error {
	if t.records == 0 {
		return nil
	}
	o, sh := t.o, t.o.sh
	var id journal.ID
	binary.LittleEndian.PutUint64(id[:8], o.random())
	binary.LittleEndian.PutUint64(id[8:], o.random())
	data := o.entry.Bytes()
	pace := Pace{Policy: storePolicy}
	for {
		begin := time.Now()
		seq, err := sh.Lease.Append(context.Background(), o.seq, id, data)
		if err == nil {
			o.seq, t.storing = seq, time.Since(begin)
			sh.dispatcher.reclaimPlaces()
			sh.snapshots.logGrew(len(data))
			sh.health.set(troubleStore, nil)
			return nil
		}
		if errors.Is(err, journal.ErrStale) || errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrTooLarge) {
			return fmt.Errorf("store: %w", err)
		}
		sh.health.set(troubleStore, err)
		sh.dispatcher.lendPlaces()
		t.answerReads()
		sh.health.logError("can't write to the log; runs do not continue until it works again", "error", err)
		if stop := t.waitToStore(pace.Next(err, o.random())); stop != nil {
			return fmt.Errorf("store: %w: %w", stop, err)
		}
	}
}

var errKilled = errors.New("the engine was closed and has no time left to store this")

// waitToStore waits before the next attempt to store, and answers reads meanwhile. Its error
// says why there must be no other attempt.
func (t *turn) waitToStore(wait time.Duration) error {
	over := time.NewTimer(wait)
	defer over.Stop()
	o, sh := t.o, t.o.sh
	for {
		select {
		case <-over.C:
			return nil
		case in := <-sh.reads:
			in.request.err = in.request.do(t)
			close(in.request.done)
		case <-o.storeWait.Done():
			return context.Cause(o.storeWait)
		case <-sh.kill:
			return errKilled
		case <-sh.Lease.Lost():
			return journal.ErrStale
		}
	}
}

// answerReads answers the reads of the turn before the turn is stored. Their answers may
// include changes that are not stored yet.
func (t *turn) answerReads() {
	t.requests = slices.DeleteFunc(t.requests, func(r *request) bool {
		if r.read {
			close(r.done)
		}
		return r.read
	})
}

// act answers the requests, begins and cancels attempts, ends waits and publishes events. The
// turn must be stored.
func (t *turn) act() {
	for i, r := range t.requests {
		if r.done != nil {
			close(r.done)
		}
		t.requests[i] = nil
	}
	t.requests = t.requests[:0]
	t.o.sh.dispatcher.act(t.storing)
	t.o.sh.deliveries.begin()
	for _, id := range t.ended {
		t.o.waiters.end(id)
	}
	t.ended = t.ended[:0]
	t.o.events.publish()
}

// storePolicy is the retry policy of writing to the log.
var storePolicy = retry.Must("decorrelated(100ms..5s) attempts=unlimited").Policy()

// Pace computes the delays of an operation that is retried without limit.
type Pace struct {
	Policy retry.Policy
	State  retry.State
}

// Next returns the delay after another failure.
func (p *Pace) Next(err error, random uint64) time.Duration {
	p.State.Attempt++
	d := retry.Decide(p.Policy, p.State, retry.OutcomeOf(err), retry.Gates{}, random)
	p.State.Prev = d.Prev
	return d.Wait
}

// Record is record for a decision of the machine, which can't contradict the state. If it does,
// this program has an error: the shard stops before the turn is stored.
func (t *turn) Record(rec machine.Record) { t.o.sh.health.broken(t.record(&rec)) }

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
	t.Record(rec)
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
