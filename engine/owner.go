package engine

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

const (
	fullEntry = 500_000 // an entry of this size takes no further command
	fullTurn  = 4096    // nor one with so many
	dueAtOnce = 1000    // timers of a turn: a herd is let go in parts
	farBehind = 100_000 // runs the view may be behind before new ones wait
)

// owner has the state of a shard and decides about requests, one turn after the other.
// One goroutine uses it, that of [shard.run], and so do the parts that are called in it:
// they read the state (m) and record what they decide in the turn.
type owner struct {
	sh     *shard
	m      *machine.Machine // the state
	turn   turn
	clock  *clock
	seq    uint64 // last entry of the log
	entry  machine.Entry
	random func() uint64
	events eventBatch

	storeWait context.Context // ends the wait for a log that can't store
	waiters   waiters
	openedAt  time.Time
	purgedAt  time.Time
	stopping  bool
}

func (o *owner) init(sh *shard) {
	o.sh, o.turn.o, o.events.hub = sh, o, &sh.hub
	o.storeWait = context.Background()
	if o.random = sh.cfg.Rand; o.random == nil {
		var seed [32]byte
		_, _ = rand.Read(seed[:])
		o.random = mathrand.New(mathrand.NewChaCha8(seed)).Uint64
	}
}

// serve makes turns until the shard is closed.
func (o *owner) serve() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	sh := o.sh
	stop := sh.stop
	for {
		starts := sh.starts
		if o.stopping || sh.views.behind() > farBehind {
			starts = nil
		}
		var first *request
		woken := false
		select {
		case first = <-sh.others:
		case first = <-sh.reads:
		case first = <-starts:
		case <-timer.C:
		case <-sh.room:
			woken = true
		case <-sh.views.wake():
		case err := <-sh.views.results():
			sh.views.confirm(err)
		case p := <-sh.snapshots.wake():
			sh.snapshots.advance(p)
		case <-sh.lease.Lost():
			return fmt.Errorf("%w: %w", ErrClosed, journal.ErrStale)
		case <-stop:
			select {
			case <-sh.kill:
				return o.finish()
			default:
			}
			stop = nil
			o.stopping = true
			sh.dispatcher.suspects.leave()
			sh.dispatcher.releaseAll()
		case <-sh.kill:
			return o.finish()
		}
		if err := o.makeTurn(first, starts); err != nil {
			return err
		}
		if woken && (!sh.dispatcher.isFull() || o.stopping) {
			sh.places.pass()
		}
		if o.stopping && sh.dispatcher.count() == 0 {
			return o.finish()
		}
		sh.views.feed()
		sh.snapshots.moveRuns()
		sh.snapshots.begin()
		timer.Reset(o.delay())
	}
}

// finish ends the shard in order.
func (o *owner) finish() error {
	o.sh.views.flush()
	o.sh.shut()
	return ErrClosed
}

// delay returns how long there is nothing to do.
func (o *owner) delay() time.Duration {
	wait := min(time.Minute, o.purgeEvery(), o.sh.snapshots.maxAge())
	wait = min(wait, o.sh.views.delay(), o.sh.snapshots.delay())
	if o.sh.dispatcher.hasMore() {
		wait = 0
	}
	if next := o.nextDue(); next < o.clock.last+int64(wait) {
		wait = time.Duration(next - o.clock.wall(time.Now()))
	}
	return max(wait, 0)
}

// nextDue returns when something is due.
func (o *owner) nextDue() int64 {
	if o.stopping {
		return 1<<63 - 1
	}
	next := min(o.m.Next(), o.sh.scheduler.nextDue())
	if at := o.registeredBy(); len(o.m.Busy()) > 0 && o.clock.last < at {
		next = min(next, at)
	}
	return min(next, o.sh.dispatcher.suspects.nextDue())
}

// registrationTime is how long handlers and workflows may be registered after the engine
// was opened, before it is recorded that one is missing.
const registrationTime = 2 * time.Second

// registeredBy returns the end of the registration time.
func (o *owner) registeredBy() int64 { return o.openedAt.Add(registrationTime).UnixNano() }

// isRegistering reports whether handlers may still be registered.
func (o *owner) isRegistering() bool { return time.Since(o.openedAt) < registrationTime }

// makeTurn gathers what there is to do, stores what follows, and acts on it.
func (o *owner) makeTurn(first *request, starts chan *request) error {
	t, sh := &o.turn, o.sh
	if err := o.beginTurn(); err != nil {
		return err
	}
	t.handle(first)
	for n := 0; n < fullTurn && o.entry.Size() < fullEntry; n++ {
		var r *request
		select {
		case r = <-sh.others:
		case r = <-sh.reads:
		default:
			select {
			case r = <-sh.others:
			case r = <-sh.reads:
			case r = <-starts:
			default:
			}
		}
		if r == nil {
			break
		}
		t.handle(r)
	}
	if !o.stopping {
		o.doDue()
		sh.dispatcher.dispatch()
	}
	if err := sh.health.fatal(); err != nil {
		return err
	}
	if err := t.commit(); err != nil {
		return err
	}
	t.act()
	runtime.Gosched() // those who were answered or called do their work before more is gathered
	return nil
}

// beginTurn begins a turn.
func (o *owner) beginTurn() error {
	now, jumped := o.clock.now()
	o.turn.now = now
	o.turn.open()
	return o.recordJump(jumped)
}

// recordJump records that the clock was set, before anything is decided by it.
func (o *owner) recordJump(by time.Duration) error {
	if by == 0 {
		return nil
	}
	o.sh.cfg.Logger.Warn("the clock was set; waits go on by the time that passes", "by", by)
	if err := o.turn.record(&machine.Record{Kind: machine.Jumped, At: o.turn.now, Delay: by}); err != nil {
		return err
	}
	if by < 0 {
		o.sh.scheduler.reschedule()
	}
	return nil
}

// doDue does what the time has brought: it ends runs and steps whose time is over, starts
// scheduled runs, and forgets old ones.
func (o *owner) doDue() {
	t := &o.turn
	for _, run := range o.m.Due(t.now, dueAtOnce) {
		rec := o.m.Expire(run, o.openedAt.UnixNano(), t.now)
		t.must(&rec)
	}
	o.sh.scheduler.fire()
	o.purge()
	o.sh.dispatcher.suspects.endIsolation()
	o.sh.dispatcher.unpark()
}

// slot returns a slot for a new run. With a key it is that of the key, unless
// the key belongs to another shard: that of a schedule's start may.
func (o *owner) slot(key string) int {
	sh := o.sh
	if slot := machine.KeySlot(key); key != "" && slot%sh.shards == sh.number {
		return slot
	}
	return int(o.random()%uint64(machine.Slots/sh.shards))*sh.shards + sh.number
}

// abandon answers all requests and ends all waits, when the owner has stopped.
func (o *owner) abandon() {
	for _, r := range o.turn.requests {
		if r.done != nil {
			r.err = o.sh.closedError()
			close(r.done)
		}
	}
	o.waiters.endAll()
}
