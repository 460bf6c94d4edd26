package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
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
