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

// turn is one round of the owner: requests, the entry that stores what follows from them,
// and what is to be done when that is stored.
type turn struct {
	o        *owner
	now      int64
	opened   int64 // the time of the entry
	records  int
	requests []*request
	ended    []machine.ID // runs that are closed
}

// open begins an entry.
func (t *turn) open() {
	boot, _ := t.o.clock.boot()
	t.records, t.opened = 0, t.now
	t.o.entry.Reset(t.now, int64(boot))
}

// readClock updates the time of the turn.
func (t *turn) readClock() error {
	now, jumped := t.o.clock.now()
	t.now = now
	return t.o.recordJump(jumped)
}

// handle decides about a request.
func (t *turn) handle(r *request) {
	if r == nil {
		return
	}
	t.requests = append(t.requests, r)
	switch {
	case r.start != nil:
		t.startRequested(r)
	case r.result != nil:
		// The attempt may have ended after the turn began, and its wait must not
		// begin before it ended.
		if r.err = t.readClock(); r.err == nil {
			t.o.sh.dispatcher.conclude(r.result)
		}
	default:
		r.err = r.do(t)
	}
}

// isFull reports whether the entry takes no further attempt.
func (t *turn) isFull() bool { return t.o.entry.Size() >= fullEntry }

// must records what the machine has decided itself. That it could contradict the
// state would be an error of this program, which stops the engine at the commit.
func (t *turn) must(rec *machine.Record) {
	if err := t.record(rec); err != nil {
		t.o.sh.health.broken(err)
	}
}

// record adds a record to the entry of the turn, with the starts of follow-up runs, and
// applies it.
func (t *turn) record(rec *machine.Record) error {
	o := t.o
	next, err := t.followUps(rec)
	if err != nil {
		return err
	}
	if t.records > 0 && o.entry.Size()+rec.Size()+next.room() > journal.MaxEntry {
		if err := t.commit(); err != nil {
			return err
		}
		t.open()
	}
	if t.records == 0 {
		boot, _ := o.clock.boot()
		o.m.Begin(o.seq+1, machine.Header{At: t.now, SinceBoot: int64(boot)})
	}
	t.records++
	o.entry.Add(rec)
	if err := o.m.Apply(rec); err != nil {
		// What was decided from the state can't contradict it.
		return fmt.Errorf("record %s: %w", rec.Kind, err)
	}
	if !rec.Run.IsZero() {
		t.noteConsequences(rec)
	}
	return t.startFollowUps(rec.Run, next)
}

// noteConsequences notes what is to be done about a record when it is stored.
func (t *turn) noteConsequences(rec *machine.Record) {
	run, ok := t.o.m.Run(rec.Run)
	if !ok {
		return
	}
	t.o.events.note(rec, run)
	switch {
	case run.Closed():
		if t.o.waiters.count > 0 {
			t.ended = append(t.ended, rec.Run)
		}
	case run.Outcome != machine.Undecided:
		t.o.sh.dispatcher.stopAttempts(run, errRunOver)
	case rec.Kind == machine.Held, rec.Kind == machine.Postponed:
		t.o.sh.dispatcher.stopAttempts(run, ErrPaused)
	}
}

// commit stores the entry. It does not return before that, unless it can't ever.
func (t *turn) commit() error {
	if t.records == 0 {
		return nil
	}
	o, sh := t.o, t.o.sh
	var id journal.ID
	binary.LittleEndian.PutUint64(id[:8], o.random())
	binary.LittleEndian.PutUint64(id[8:], o.random())
	data := o.entry.Bytes()
	pace := pace{policy: storePolicy}
	for {
		seq, err := sh.lease.Append(context.Background(), o.seq, id, data)
		if err == nil {
			o.seq = seq
			sh.dispatcher.reclaimPlaces()
			sh.snapshots.logGrew(len(data))
			sh.health.storing(nil)
			return nil
		}
		if errors.Is(err, journal.ErrStale) || errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrTooLarge) {
			return fmt.Errorf("store: %w", err)
		}
		sh.health.storing(err)
		sh.dispatcher.lendPlaces()
		t.answerReads()
		sh.health.logError("can't store; nothing goes on until it can", "error", err)
		if stop := t.waitToStore(pace.next(err, o.random())); stop != nil {
			return fmt.Errorf("store: %w: %w", stop, err)
		}
	}
}

var errKilled = errors.New("the engine must end at once")

// waitToStore waits before the next attempt to store, and answers reads meanwhile. It
// returns why there must be no other attempt.
func (t *turn) waitToStore(wait time.Duration) error {
	over := time.NewTimer(wait)
	defer over.Stop()
	o, sh := t.o, t.o.sh
	for {
		select {
		case <-over.C:
			return nil
		case r := <-sh.reads:
			r.err = r.do(t)
			close(r.done)
		case <-o.storeWait.Done():
			return context.Cause(o.storeWait)
		case <-sh.kill:
			return errKilled
		case <-sh.lease.Lost():
			return journal.ErrStale
		}
	}
}

// answerReads answers the reads of the turn, which do not depend on what is stored. They
// may show what is not stored yet.
func (t *turn) answerReads() {
	kept := t.requests[:0]
	for _, r := range t.requests {
		if r.read {
			close(r.done)
		} else {
			kept = append(kept, r)
		}
	}
	clear(t.requests[len(kept):])
	t.requests = kept
}

// act does what was decided, now that it is stored.
func (t *turn) act() {
	for i, r := range t.requests {
		if r.done != nil {
			close(r.done)
		}
		t.requests[i] = nil
	}
	t.requests = t.requests[:0]
	t.o.sh.dispatcher.act()
	for _, id := range t.ended {
		t.o.waiters.end(id)
	}
	t.ended = t.ended[:0]
	t.o.events.publish()
}

// storePolicy is how the engine waits for its own disk.
var storePolicy = retry.Must("decorrelated(100ms..5s) attempts=unlimited").Policy()
