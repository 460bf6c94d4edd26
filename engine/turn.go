package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// turn is one round of the owner: what was asked, what follows, and what is to
// be done about it when it is stored.
type turn struct {
	e        *Engine
	now      int64
	records  int
	requests []*request
	launches []*attempt
	ended    []machine.ID
	stops    []stop
	offset   int  // of the queue that comes first
	more     bool // the entry was full before everything was begun
}

// stop is an attempt that is to be told to end.
type stop struct {
	*attempt
	cause error
}

// begin begins a turn.
func (e *Engine) begin() error {
	now, jumped := e.clock.now()
	e.turn.now = now
	e.turn.open()
	return e.jump(jumped)
}

// refresh looks at the clock again.
func (t *turn) refresh() error {
	now, jumped := t.e.clock.now()
	t.now = now
	return t.e.jump(jumped)
}

// open begins an entry.
func (t *turn) open() {
	boot, _ := t.e.clock.boot()
	t.records = 0
	t.e.entry.Reset(t.now, int64(boot))
}

// jump records that the clock was set, before anything is decided by it.
func (e *Engine) jump(by time.Duration) error {
	if by == 0 {
		return nil
	}
	e.cfg.Logger.Warn("the clock was set; waits go on by the time that passes", "by", by)
	if err := e.turn.record(&machine.Record{Kind: machine.Jumped, At: e.turn.now, Delay: by}); err != nil {
		return err
	}
	if by < 0 {
		e.turn.reschedule()
	}
	return nil
}

// record adds a record to the entry of the turn, and applies it.
func (t *turn) record(rec *machine.Record) error {
	e := t.e
	size := e.entry.Size() + rec.Size()
	if rec.Ends == machine.Dead {
		size += giveUpRoom
	}
	if t.records > 0 && size > journal.MaxEntry {
		if err := e.commit(); err != nil {
			return err
		}
		t.open()
	}
	if t.records == 0 {
		boot, _ := e.clock.boot()
		e.m.Begin(e.seq+1, machine.Header{At: t.now, SinceBoot: int64(boot)})
	}
	t.records++
	e.entry.Add(rec)
	if err := e.m.Apply(rec); err != nil {
		// What was decided from the state can't contradict it.
		return fmt.Errorf("record %s: %w", rec.Kind, err)
	}
	if !rec.Run.IsZero() {
		e.after(t, rec)
	}
	if run, ok := e.m.Run(rec.Run); ok && rec.Ends == machine.Dead {
		return t.giveUp(run)
	}
	return nil
}

// after notes what is to be done about a record when it is stored.
func (e *Engine) after(t *turn, rec *machine.Record) {
	run, ok := e.m.Run(rec.Run)
	if !ok {
		return
	}
	e.hub.note(rec, run)
	switch {
	case run.Closed():
		if len(e.waiters) > 0 {
			t.ended = append(t.ended, rec.Run)
		}
	case run.Outcome != machine.Undecided:
		t.end(run, errRunOver)
	case rec.Kind == machine.Held, rec.Kind == machine.Postponed:
		t.end(run, ErrPaused)
	}
}

// end ends the attempts of a run when that is stored.
func (t *turn) end(run *machine.Run, cause error) {
	for _, a := range t.e.attemptsOf(run) {
		t.stops = append(t.stops, stop{a, cause})
	}
}

// commit stores the entry. It does not return before that, unless it can't ever.
func (e *Engine) commit() error {
	t := &e.turn
	if t.records == 0 {
		return nil
	}
	var id journal.ID
	binary.LittleEndian.PutUint64(id[:8], e.random())
	binary.LittleEndian.PutUint64(id[8:], e.random())
	data := e.entry.Bytes()
	policy := retry.Policy{Attempts: retry.Unlimited}
	policy.Schedule = storePolicy.Schedule
	var state retry.State
	for {
		seq, err := e.lease.Append(context.Background(), e.seq, id, data)
		if err == nil {
			e.seq = seq
			e.snapshots.grown(len(data))
			e.health.storing(nil)
			return nil
		}
		if errors.Is(err, journal.ErrStale) || errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrTooLarge) {
			return fmt.Errorf("store: %w", err)
		}
		e.health.storing(err)
		state.Attempt++
		d := retry.Decide(policy, state, retry.OutcomeOf(err), retry.Gates{}, e.random())
		state.Prev = d.Prev
		e.cfg.Logger.Error("can't store; nothing goes on until it can", "error", err, "again_in", d.Wait)
		select {
		case <-time.After(d.Wait):
		case <-e.patience.Done():
			return fmt.Errorf("store: %w: %w", context.Cause(e.patience), err)
		case <-e.kill:
			return fmt.Errorf("store: %w", err)
		case <-e.lease.Lost():
			return fmt.Errorf("store: %w", journal.ErrStale)
		}
	}
}

// storePolicy is how the engine waits for its own disk.
var storePolicy = retry.Must("decorrelated(100ms..5s) attempts=unlimited").Policy()

// act does what was decided, now that it is stored.
func (t *turn) act() {
	e := t.e
	for i, r := range t.requests {
		if r.done != nil {
			close(r.done)
		}
		t.requests[i] = nil
	}
	t.requests = t.requests[:0]
	for i, a := range t.launches {
		e.attempts.Add(1)
		go a.run()
		t.launches[i] = nil
	}
	t.launches = t.launches[:0]
	for i, s := range t.stops {
		s.end(s.cause)
		t.stops[i] = stop{}
	}
	t.stops = t.stops[:0]
	for _, id := range t.ended {
		for _, w := range e.waiters[id] {
			close(w)
		}
		delete(e.waiters, id)
	}
	t.ended = t.ended[:0]
	e.hub.publish()
}

// handle decides about a request.
func (e *Engine) handle(r *request) {
	if r == nil {
		return
	}
	t := &e.turn
	t.requests = append(t.requests, r)
	switch {
	case r.start != nil:
		r.id, r.err = t.start(r.start, r.def)
	case r.result != nil:
		// The attempt may have ended after the turn began, and its wait must not
		// begin before it ended.
		if r.err = t.refresh(); r.err == nil {
			e.concluded(r.result)
		}
	default:
		r.err = r.do(t)
	}
}
