package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

const (
	fullEntry = 500_000 // an entry of this size, in bytes, gets no further request
	fullTurn  = 4096    // a turn handles at most this many requests after the first
	dueAtOnce = 1000    // a turn handles at most this many timers that are due
	farBehind = 100_000 // if the view lacks more than this many changed runs, new starts wait
)

// owner has the state of a shard and handles requests, in one turn after the other. Only the
// goroutine of [shard.run] uses it. Other parts of the shard that this goroutine calls read
// the state (m) and add records to the turn.
type owner struct {
	sh     *shard
	m      *machine.Machine // the state
	turn   turn
	clock  *clock
	seq    uint64 // number of the last entry of the log
	entry  machine.Entry
	random func() uint64
	events eventBatch

	storeWait context.Context // while the shard is being opened: ends the wait for a log that can't store
	waiters   waiters
	openedAt  time.Time
	purgedAt  time.Time
	stopping  bool
}

func (o *owner) init(sh *shard) {
	o.sh, o.turn.o, o.events.hub = sh, o, &sh.hub
	o.storeWait, o.waiters.byRun = context.Background(), map[machine.ID][]*waiter{}
	if o.random = sh.cfg.Rand; o.random == nil {
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
		case err := <-sh.views.written:
			sh.views.confirm(err)
		case p := <-sh.snapshots.wake():
			sh.snapshots.advance(p, 0)
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
		begin := time.Now()
		if err := o.makeTurn(first, starts); err != nil {
			return err
		}
		sh.snapshots.advanceAfter(time.Since(begin))
		if woken && (!sh.dispatcher.full || o.stopping) {
			sh.places.pass()
		}
		if woken {
			sh.functions.pass()
		}
		if o.stopping && len(sh.dispatcher.running) == 0 && len(sh.dispatcher.flows) == 0 {
			return o.finish()
		}
		sh.views.feed()
		sh.snapshots.moveRuns()
		sh.snapshots.begin()
		timer.Reset(o.delay())
	}
}

// finish writes the view, and closes the parts of the shard.
func (o *owner) finish() error {
	o.sh.views.flush()
	o.sh.shut()
	return ErrClosed
}

// delay returns how long the owner can wait for a request before it makes the next turn.
func (o *owner) delay() time.Duration {
	wait := min(time.Minute, o.purgeEvery(), o.sh.snapshots.maxAge())
	wait = min(wait, o.sh.views.delay(), o.sh.snapshots.delay())
	if o.sh.replay != nil && len(o.sh.dispatcher.flows) == 0 {
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
	next := min(o.m.Next(), o.sh.scheduler.nextDue())
	if at := o.registeredBy(); (len(o.m.Busy()) > 0 || o.m.HasSuspects()) && o.clock.last < at {
		next = min(next, at)
	}
	return min(next, o.sh.dispatcher.suspects.nextDue(), o.sh.dispatcher.lingers.nextDue())
}

// registrationTime is how long the engine waits, after it was opened, for handlers and
// workflows to be registered, before it records that one is missing.
const registrationTime = 2 * time.Second

// registeredBy returns the end of the registration time, in Unix nanoseconds.
func (o *owner) registeredBy() int64 { return o.openedAt.Add(registrationTime).UnixNano() }

// isRegistering reports whether the registration time is not over.
func (o *owner) isRegistering() bool { return time.Since(o.openedAt) < registrationTime }

// makeTurn handles the pending requests and everything that is due, stores the resulting
// entry, and then answers the requests and begins attempts. first may be nil; starts is nil
// if no start is accepted.
func (o *owner) makeTurn(first *request, starts chan *request) error {
	t, sh := &o.turn, o.sh
	if err := o.beginTurn(); err != nil {
		return err
	}
	t.handle(first)
	one, other := sh.others, sh.reads
	for n := 0; n < fullTurn && o.entry.Size() < fullEntry; n++ {
		one, other = other, one // so that none of the two has to wait for the other
		r := nextRequest(one, other, starts)
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
	runtime.Gosched() // let callers and handlers run, so that the next turn has more requests
	return nil
}

// nextRequest returns a pending request, from first before second and from starts last; nil if there
// is none. A select of one channel takes a fraction of the time of a select of several.
func nextRequest(first, second, starts chan *request) *request {
	select {
	case r := <-first:
		return r
	default:
	}
	select {
	case r := <-second:
		return r
	default:
	}
	select {
	case r := <-starts:
		return r
	default:
		return nil
	}
}

// beginTurn begins a turn: it reads the clock and opens an entry.
func (o *owner) beginTurn() error {
	now, jumped := o.clock.now()
	o.turn.now = now
	o.turn.open()
	return o.recordJump(jumped)
}

// recordJump records that the clock was set, unless by is 0. It must be called before any
// decision that depends on the new time.
func (o *owner) recordJump(by time.Duration) error {
	if by == 0 {
		return nil
	}
	o.sh.cfg.Logger.Warn("the clock was set; waits keep their length", "by", by)
	if err := o.turn.record(&machine.Record{Kind: machine.Jumped, At: o.turn.now, Delay: by}); err != nil {
		return err
	}
	if by < 0 {
		o.sh.scheduler.reschedule()
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
		t.must(&rec)
		o.sh.dispatcher.opEnded(s.Run, &rec)
	}
	for _, run := range expired {
		if run.Outcome != machine.Undecided || run.Deadline == 0 {
			continue // its parent has expired too, and has canceled it
		}
		rec := o.m.Expire(run, o.openedAt.UnixNano(), t.now)
		t.must(&rec)
	}
	o.sh.dispatcher.suspendLingering()
	o.sh.scheduler.fire()
	o.purge()
	o.sh.dispatcher.suspects.endIsolation()
	o.sh.dispatcher.unpark()
	o.sh.dispatcher.checkFunctions()
	o.sh.dispatcher.callChanged()
	o.sh.dispatcher.parked.report(&o.sh.health)
}

// slot returns a slot of this shard for a new run: the slot of the key if that is in this
// shard, and otherwise a random one. The slot of the key of a scheduled start may be in
// another shard.
func (o *owner) slot(key string) int {
	sh := o.sh
	if slot := machine.KeySlot(key); key != "" && slot%sh.shards == sh.number {
		return slot
	}
	return int(o.random()%uint64(machine.Slots/sh.shards))*sh.shards + sh.number
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
	next     followUps     // the run that starts with the next record of kind Continued or Called
}

// open begins a new entry.
func (t *turn) open() {
	t.records, t.opened = 0, t.now
	t.o.entry.Reset(t.now, int64(t.o.clock.up))
}

// readClock updates the time of the turn.
func (t *turn) readClock() error {
	now, jumped := t.o.clock.now()
	t.now = now
	return t.o.recordJump(jumped)
}

// handle handles a request. It is answered when the turn is stored.
func (t *turn) handle(r *request) {
	if r == nil {
		return
	}
	t.requests = append(t.requests, r)
	switch {
	case r.start != nil:
		t.startRequested(r)
	case r.result != nil:
		// The attempt may have ended after the turn began. Its wait must not begin
		// before its end.
		if r.err = t.readClock(); r.err == nil {
			t.o.sh.dispatcher.conclude(r.result)
		}
	case r.group != nil:
		t.o.sh.dispatcher.startGroup(r.call, r.group)
	case r.call != nil:
		t.o.sh.dispatcher.endCall(r.call, r.call.end)
	default:
		r.err = r.do(t)
	}
}

// isFull reports whether the entry is so large that no further attempt may begin.
func (t *turn) isFull() bool { return t.o.entry.Size() >= fullEntry }

// must is record for a decision of the machine, which can't contradict the state. If it does,
// this program has an error: the shard stops before the turn is stored.
func (t *turn) must(rec *machine.Record) {
	if err := t.record(rec); err != nil {
		t.o.sh.health.broken(err)
	}
}

// record adds a record to the entry of the turn and applies it, with the starts of follow-up
// runs. If the entry has no room, it stores the entry first and opens another.
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
		t.tellFamily(rec.Run)
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
		t.o.sh.dispatcher.parked.remove(rec.Run)
		if t.o.waiters.count > 0 {
			t.ended = append(t.ended, rec.Run)
		}
	case run.Outcome != machine.Undecided:
		t.o.sh.dispatcher.stopAttempts(run, errRunOver)
	case rec.Kind == machine.Undoing:
		t.o.sh.dispatcher.beginUndo(run)
	case rec.Kind == machine.Freed:
		t.o.sh.dispatcher.resumed(run)
	case rec.Kind == machine.Held, rec.Kind == machine.Postponed:
		t.o.sh.dispatcher.stopAttempts(run, ErrPaused)
	}
}

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
	pace := pace{policy: storePolicy}
	for {
		begin := time.Now()
		seq, err := sh.lease.Append(context.Background(), o.seq, id, data)
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
		if stop := t.waitToStore(pace.next(err, o.random())); stop != nil {
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
	t.o.sh.dispatcher.act()
	for _, id := range t.ended {
		t.o.waiters.end(id)
	}
	t.ended = t.ended[:0]
	t.o.events.publish()
}

// storePolicy is the retry policy of writing to the log.
var storePolicy = retry.Must("decorrelated(100ms..5s) attempts=unlimited").Policy()

// waiters are the callers that wait for ends of runs. A caller cancels a wait without the
// owner, which may be unable to answer for hours; canceled waits are swept out later.
type waiters struct {
	byRun   map[machine.ID][]*waiter
	count   int
	sweepAt int // the count at which canceled waits are swept out
}

// minSweep is the smallest count at which canceled waits are swept out.
const minSweep = 1024

// add adds a waiter for the end of a run, unless its wait is canceled.
func (s *waiters) add(id machine.ID, w *waiter) {
	if w.canceled.Load() {
		return
	}
	s.byRun[id] = append(s.byRun[id], w)
	if s.count++; s.count >= max(s.sweepAt, minSweep) {
		s.sweep()
	}
}

// sweep removes canceled waits.
func (s *waiters) sweep() {
	s.count = 0
	for id, list := range s.byRun {
		list = slices.DeleteFunc(list, func(w *waiter) bool { return w.canceled.Load() })
		if s.byRun[id] = list; len(list) == 0 {
			delete(s.byRun, id)
		}
		s.count += len(list)
	}
	s.sweepAt = 2 * s.count
}

// end ends all waits for a run.
func (s *waiters) end(id machine.ID) {
	for _, w := range s.byRun[id] {
		close(w.over)
	}
	s.count -= len(s.byRun[id])
	delete(s.byRun, id)
}

// endAll ends all waits.
func (s *waiters) endAll() {
	for id := range s.byRun {
		s.end(id)
	}
}
