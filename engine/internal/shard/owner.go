package shard

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal"
)

const (
	fullEntry = 500_000 // an entry of this size, in bytes, gets no further request
	fullTurn  = 4096    // a turn handles at most this many requests after the first
	dueAtOnce = 1000    // a turn handles at most this many timers that are due
	farBehind = 100_000 // if the view lacks more than this many changed runs, new starts wait
)

// owner has the state of a shard and handles requests, in one turn after the other, in the goroutine of
// [Shard.Run]. The parts of the shard that it calls read the state (m) and get a [Recorder].
type owner struct {
	sh *Shard
	state
	turn   turn
	entry  machine.Entry
	random func() uint64
	events eventBatch

	storeWait context.Context // while the shard is being opened: ends the wait for a log that can't store
	waiters   waiters
	purge     purge
}

func (o *owner) init(sh *Shard) {
	o.sh, o.turn.o, o.events.hub = sh, o, &sh.process.Hub
	o.purge = purge{state: &o.state, settings: &sh.process.Settings}
	o.storeWait, o.waiters.byRun = context.Background(), map[machine.ID][]*waiter{}
	if o.random = sh.process.Settings.Rand; o.random == nil {
		var seed [32]byte
		_, _ = rand.Read(seed[:])
		o.random = mathrand.New(mathrand.NewChaCha8(seed)).Uint64
	}
}

// serve makes turns until the shard is closed or can't continue. It returns ErrClosed, or why
// it can't continue.
func (o *owner) serve() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	sh := o.sh
	for {
		starts := sh.starts
		if o.stopping || sh.views.behind() > farBehind {
			starts = nil
		}
		first, woken, err := o.wait(starts, timer.C)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := o.makeTurn(first, starts); err != nil {
			return err
		}
		sh.snapshots.advanceAfter(time.Since(begin))
		if woken {
			sh.dispatcher.admission.Pass(!sh.dispatcher.admission.IsFull() || o.stopping)
		}
		if o.stopping && len(sh.dispatcher.running) == 0 && sh.dispatcher.calls.Len() == 0 {
			return o.finish()
		}
		sh.views.feed()
		sh.snapshots.moveRuns()
		sh.snapshots.begin(sh.views.reaches)
		timer.Reset(o.delay())
	}
}

// wait waits for a request or for another reason to make a turn. woken says that an attempt may be able
// to begin. err says that there must be no other turn.
func (o *owner) wait(starts chan incoming, due <-chan time.Time) (first incoming, woken bool, err error) {
	sh := o.sh
	stop := sh.stop
	if o.stopping {
		stop = nil
	}
	select {
	case first = <-sh.others:
	case first = <-sh.reads:
	case first = <-starts:
	case <-due:
	case <-sh.room:
		woken = true
	case <-sh.views.wake():
	case err := <-sh.views.written:
		sh.views.confirm(err)
	case p := <-sh.snapshots.progress:
		sh.snapshots.advance(p, 0)
	case <-sh.Lease.Lost():
		err = fmt.Errorf("%w: %w", ErrClosed, journal.ErrStale)
	case <-stop:
		err = o.beginStop()
	case <-sh.kill:
		err = o.finish()
	}
	return first, woken, err
}

// beginStop begins to end in order, unless no time is left for that.
func (o *owner) beginStop() error {
	select {
	case <-o.sh.kill:
		return o.finish()
	default:
	}
	o.stopping = true
	o.sh.dispatcher.admission.LeaveQuarantine()
	o.sh.dispatcher.releaseAll(o.sh.given.Load())
	return nil
}

// finish writes the view, and closes the parts of the shard.
func (o *owner) finish() error {
	o.sh.views.flush()
	o.sh.Release()
	return ErrClosed
}

// delay returns how long the owner can wait for a request before it makes the next turn.
func (o *owner) delay() time.Duration {
	wait := min(time.Minute, o.purge.every(), o.sh.snapshots.maxAge())
	wait = min(wait, o.sh.views.delay(), o.sh.snapshots.delay())
	if o.sh.process.replay != nil && o.sh.dispatcher.calls.Len() == 0 {
		wait = longReplay
	}
	if o.sh.dispatcher.more || o.sh.dispatcher.unchecked > 0 && !o.stopping {
		wait = 0
	}
	if next := o.nextDue(); next < o.clock.last+int64(wait) {
		wait = time.Duration(next - o.clock.wall(time.Now()))
	}
	return max(wait, 0)
}

// nextDue returns when the next timer, schedule or suspect is due, in Unix nanoseconds.
func (o *owner) nextDue() int64 {
	if o.stopping {
		return 1<<63 - 1
	}
	next := min(o.m.Next(), o.sh.scheduler.nextDue(o.turn.now))
	if at := o.registeredBy(); (len(o.m.Busy()) > 0 || o.m.HasSuspects()) && o.clock.last < at {
		next = min(next, at)
	}
	return min(next, o.sh.dispatcher.admission.NextDue(o.m), o.sh.dispatcher.calls.NextDue())
}

// makeTurn handles the pending requests and everything that is due, stores the resulting
// entry, and then answers the requests and begins attempts. first may be empty; starts is nil
// if no start is accepted.
func (o *owner) makeTurn(first incoming, starts chan incoming) error {
	t, sh := &o.turn, o.sh
	if err := o.beginTurn(); err != nil {
		return err
	}
	t.handle(first)
	one, other := sh.others, sh.reads
	for n := 0; n < fullTurn && o.entry.Size() < fullEntry; n++ {
		one, other = other, one // so that none of the two has to wait for the other
		in := nextRequest(one, other, starts)
		if in == (incoming{}) {
			break
		}
		t.handle(in)
	}
	if !o.stopping {
		o.doDue()
		sh.dispatcher.dispatch(t)
	}
	if err := sh.health.fatal(); err != nil {
		return err
	}
	if err := t.commit(); err != nil {
		return err
	}
	t.act()
	runtime.Gosched() // let callers and handlers run, so that the next turn has more requests
	return nil
}

// nextRequest returns a pending request, from first before second and from starts last; empty if there
// is none. A select of one channel takes a fraction of the time of a select of several.
func nextRequest(first, second, starts chan incoming) incoming {
	for _, from := range [...]chan incoming{first, second, starts} {
		select {
		case in := <-from:
			return in
		default:
		}
	}
	return incoming{}
}

// beginTurn begins a turn: it reads the clock and opens an entry.
func (o *owner) beginTurn() error {
	now, jumped := o.clock.now()
	o.turn.now = now
	o.sh.dispatcher.calls.BeginTurn(o.clock.mono)
	o.turn.open()
	return o.recordJump(jumped)
}

// recordJump records that the clock was set, unless by is 0. It must be called before any
// decision that depends on the new time.
func (o *owner) recordJump(by time.Duration) error {
	if by == 0 {
		return nil
	}
	o.sh.process.Settings.Logger.Warn("the clock was set; waits keep their length", "by", by)
	if err := o.turn.record(new(machine.Jump(by, o.turn.now))); err != nil {
		return err
	}
	if by < 0 {
		o.sh.scheduler.reschedule(&o.turn)
	}
	return nil
}

// doDue handles everything that is due: it ends runs whose time is over, enqueues steps whose
// waits are over, starts scheduled runs, deletes old runs, ends isolations and continues
// parked steps.
func (o *owner) doDue() {
	t := &o.turn
	expired, slept := o.m.Due(t.now, dueAtOnce)
	for _, s := range slept {
		rec := o.m.Slept(s.Run, s.Number, t.now)
		t.Record(rec)
		o.sh.dispatcher.calls.OpEnded(t, s.Run, &rec)
	}
	for _, run := range expired {
		if run.Outcome != machine.Undecided || run.Deadline == 0 {
			continue // its parent has expired too, and has canceled it
		}
		rec := o.m.Expire(run, o.openedAt.UnixNano(), t.now)
		t.Record(rec)
	}
	o.sh.dispatcher.calls.SuspendDue(t)
	o.sh.scheduler.fire(t)
	o.purgeOld()
	o.sh.dispatcher.admission.EndIsolation(o.m, t.opened, func() {
		// Any record will do: the time of the entry shows that the attempt was not alone any more if the
		// process dies later.
		rec, _ := o.purge.record(t.now)
		t.Record(rec)
	})
	o.sh.dispatcher.unpark(t)
	if list, isChecked := o.sh.dispatcher.calls.Blocked(); isChecked {
		o.sh.health.replace(&o.sh.health.blocked, list)
	}
	o.sh.dispatcher.callChanged()
	if list, changed := o.sh.dispatcher.calls.Parked(); changed {
		o.sh.health.replace(&o.sh.health.parked, list)
	}
}

// purgeOld deletes the runs whose retention is over, if it is time to look for them. It also
// records an entry if a snapshot needs one to begin.
func (o *owner) purgeOld() {
	idle := o.sh.snapshots.needsEntry()
	if now := time.Now(); idle || now.Sub(o.purge.at) >= o.purge.every() {
		o.purge.at = now
		t := &o.turn
		if rec, ok := o.purge.record(t.now); ok || idle {
			t.Record(rec)
		}
		o.sh.views.expire = true
	}
}

// slot returns a slot of this shard for a new run: the slot of the key if that is in this
// shard, and otherwise a random one. The slot of the key of a scheduled start may be in
// another shard.
func (o *owner) slot(key string) int {
	sh := o.sh
	if slot := machine.KeySlot(key); key != "" && slot%sh.shards == sh.Number {
		return slot
	}
	return int(o.random()%uint64(machine.Slots/sh.shards))*sh.shards + sh.Number
}

// abandon answers the requests of the last turn with an error and ends all waits for runs,
// when the owner has stopped.
func (o *owner) abandon() {
	for _, r := range o.turn.requests {
		if r.done != nil {
			r.err = o.sh.closedError()
			close(r.done)
		}
	}
	o.waiters.endAll()
}

// longReplay is how long the owner of a replayed run waits, at most, while the run only sleeps: a sleep
// for a year takes no more turns than one for a minute.
const longReplay = 365 * 24 * time.Hour

// purge deletes the runs whose retention is over.
type purge struct {
	state    *state
	settings *Settings
	at       time.Time // when such runs were looked for last
}

// every returns the time between two searches for runs whose retention is over.
func (p *purge) every() time.Duration {
	return min(time.Hour, p.settings.Retention/20, p.settings.DeadRetention/20)
}

// record returns the record that deletes the runs whose retention is over, except dead
// runs that a follow-up run refers to. ok is false if there is nothing to delete.
func (p *purge) record(now int64) (rec machine.Record, ok bool) {
	dead := now - int64(p.settings.DeadRetention)
	return p.state.m.Purge(now-int64(p.settings.Retention), dead, p.referenced(dead))
}

// referenced returns the dead runs whose input a follow-up run may still need. A follow-up
// run may need it until it has succeeded or was canceled, or was dead for longer than the
// retention: dead is the time before which dead runs are deleted.
func (p *purge) referenced(dead int64) map[machine.ID]bool {
	ids := map[machine.ID]bool{}
	for _, r := range p.state.m.All() {
		if r.Finished() || r.Closed() && r.Ended < dead {
			continue
		}
		text, follows := strings.CutPrefix(r.Source(), giveUpSource)
		switch {
		case r.IsCold(): // its input is not in memory, and may be a reference
		case !workflow.IsReference(r.Input):
			continue
		case !follows: // it repeats a follow-up run
			var g info.GaveUp
			if json.Unmarshal(r.Input, &g) == nil && g.ByReference != nil {
				text, follows = g.ByReference.Run, true
			}
		}
		if id, err := machine.ParseID(text); follows && err == nil {
			ids[id] = true
		}
	}
	return ids
}
