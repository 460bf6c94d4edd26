package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// dispatcher begins attempts while there are places for them, and has those that run. It
// is called by the owner, but for handlerStuck, stuckCount and handlerReturned.
type dispatcher struct {
	sh *shard
	o  *owner

	running  map[attemptKey]*attempt
	stuck    map[stuckHandler]bool // true for those that have returned before the owner knew that they are stuck
	stuckNow atomic.Int64          // handlers that are stuck and have not returned
	launches []*attempt            // that begin when the entry is stored
	stops    []stop
	known    int64 // version of the registry that parked steps were compared with

	offset   int  // of the queue that comes first
	more     bool // the entry was full before everything was begun
	full     bool // there was no place for another attempt
	held     bool // others wait for an attempt that runs alone
	suspects suspects
}

// stop is an attempt whose context is to be canceled.
type stop struct {
	*attempt
	cause error
}

// stuckHandler is an attempt that was given up while its handler was running.
type stuckHandler struct {
	attemptKey
	number int
}

func (d *dispatcher) init(sh *shard) {
	d.sh, d.o = sh, &sh.owner
	d.running = map[attemptKey]*attempt{}
	d.stuck = map[stuckHandler]bool{}
	d.suspects.d = d
}

// dispatch begins attempts while there are places: of suspects, and then one of each queue in
// turn. A suspect that has to run alone comes last, or no other attempt would ever begin.
func (d *dispatcher) dispatch() {
	d.full, d.held = false, false
	d.suspects.dispatch()
	d.dispatchQueues()
	d.suspects.isolate()
}

func (d *dispatcher) dispatchQueues() {
	for begun := true; begun && !d.full && !d.held && !d.o.turn.isFull(); {
		begun = false
		queues := d.o.m.Busy()
		for i := range queues {
			q := queues[(i+d.offset)%len(queues)]
			if d.full || d.held || d.o.turn.isFull() {
				break
			}
			if d.dispatchFrom(q) {
				begun = true
			}
		}
		d.offset++
	}
	d.more = d.o.turn.isFull()
}

// dispatchFrom begins an attempt from the queue, if there may be one.
func (d *dispatcher) dispatchFrom(q *machine.Queue) bool {
	sh := d.sh
	runs, attempts := sh.handlers.limits(q.Workflow.Name, q.Step)
	if attempts > 0 && q.Running >= attempts {
		return false
	}
	run, step, ok := q.First(runs == 0 || q.Workflow.Active < runs)
	if !ok {
		return false
	}
	handler := sh.handlers.handler(run.Def.Steps[step].Handler)
	if handler == nil {
		return d.parkStep(run, step)
	}
	if !sh.quarantine.enter(sh) {
		d.held = true
		return false
	}
	if !sh.places.take(sh) {
		sh.quarantine.exit()
		d.full = true
		return false
	}
	rec := d.o.m.Attempt(run, step, d.o.turn.now)
	d.launch(run, step, handler, nil, &rec)
	return true
}

// parkStep lets a step wait for its handler, once there was time to register it.
func (d *dispatcher) parkStep(run *machine.Run, step int) bool {
	if d.o.isRegistering() {
		return false
	}
	rec := d.o.m.Park(run, step, d.o.turn.now)
	d.o.turn.must(&rec)
	return true
}

// unpark lets steps go on whose handlers are known by now.
func (d *dispatcher) unpark() {
	version := d.sh.handlers.version.Load()
	if version == d.known {
		return
	}
	d.known = version
	t := &d.o.turn
	var recs []machine.Record
	for name := range d.o.m.ParkedHandlers() {
		if d.sh.handlers.handler(name) == nil {
			continue
		}
		d.o.m.Parked(name, func(run *machine.Run, step int) {
			recs = append(recs, d.o.m.Unpark(run, step, t.now))
		})
	}
	for i := range recs {
		t.must(&recs[i])
	}
}

// launch records that an attempt begins, and has it begun when that is stored.
func (d *dispatcher) launch(run *machine.Run, step int, handler Handler, trial *trial, rec *machine.Record) {
	d.o.turn.must(rec)
	a := d.newAttempt(run, step, handler, rec)
	a.trial = trial
	d.launches = append(d.launches, a)
}

func (d *dispatcher) newAttempt(run *machine.Run, step int, handler Handler, rec *machine.Record) *attempt {
	def := &run.Def.Steps[step]
	a := &attempt{
		sh: d.sh, key: attemptKey{run.ID, step}, number: rec.Attempt, handler: handler, def: run.Def, silence: def.Heartbeat,
		task: Task{
			Run: run.ID.String(), Workflow: run.Def.Name, Key: run.Key, Step: def.Name,
			Attempt: int(run.Steps[step].Spent) + 1, Attempts: limit(def.Policy), Total: rec.Attempt, Created: time.Unix(0, run.Created), Source: run.Source(), Args: def.Args, Input: slices.Clone(run.Input),
			Progress: slices.Clone(run.Progress(step)), Spent: int(run.Steps[step].Spent), Windows: int(run.Steps[step].Windows),
		},
	}
	origin, key, _ := run.Origin()
	a.task.Origin, a.task.OriginKey = origin.String(), key
	a.outputs = slices.Clone(run.Outputs())
	// At the run's own deadline the owner ends it, and says why.
	if rec.Deadline != 0 && rec.Deadline != run.Deadline {
		if a.timeout = time.Duration(rec.Deadline - rec.At); a.timeout <= 0 {
			a.timeout, a.handler = 0, timedOutInQueue(def.Policy.TotalTimeout)
		}
	}
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	d.running[a.key] = a
	return a
}

// timedOutInQueue is called instead of the handler of a step whose total timeout ended
// before the attempt could begin.
func timedOutInQueue(total time.Duration) Handler {
	return func(context.Context, *Task) ([]byte, error) {
		return nil, fmt.Errorf("%w: the step's total timeout of %v ended in the queue for a free place; the handler was not called", ErrTimeout, total)
	}
}

// limit returns how many attempts a policy allows.
func limit(p retry.Policy) int { return cmp.Or(p.Attempts, 1) }

// act begins and ends attempts, as was decided in the turn, now that it is stored.
func (d *dispatcher) act() {
	for i, a := range d.launches {
		d.sh.attempts.Add(1)
		go a.run()
		d.launches[i] = nil
	}
	d.launches = d.launches[:0]
	for i, s := range d.stops {
		s.end(s.cause)
		d.stops[i] = stop{}
	}
	d.stops = d.stops[:0]
	d.suspects.act()
}

// conclude records the end of an attempt.
func (d *dispatcher) conclude(r *machine.Result) {
	key := attemptKey{r.Run, r.Step}
	if a := d.running[key]; a != nil && a.number == r.Attempt {
		delete(d.running, key)
		a.leave()
		if r.Outcome.Class == retry.ClassStuck {
			d.noteStuck(stuckHandler{key, r.Attempt}, false)
		}
	}
	if rec, ok := d.o.m.Finish(r, d.o.turn.now, d.o.random()); ok {
		d.o.turn.must(&rec)
	}
}

// noteStuck notes that a handler is stuck, or that it has returned. Either may come first.
func (d *dispatcher) noteStuck(h stuckHandler, returned bool) {
	if _, known := d.stuck[h]; known {
		delete(d.stuck, h)
	} else {
		d.stuck[h] = returned
	}
}

// handlerStuck counts a handler that is given up.
func (d *dispatcher) handlerStuck() { d.stuckNow.Add(1) }

// stuckCount returns how many handlers are stuck and have not returned.
func (d *dispatcher) stuckCount() int64 { return d.stuckNow.Load() }

// handlerReturned says that a handler which was given up has returned after all. It is
// called by the goroutine of the handler.
func (d *dispatcher) handlerReturned(h stuckHandler) {
	d.stuckNow.Add(-1)
	select {
	case d.sh.others <- &request{do: func(*turn) error { d.noteStuck(h, true); return nil }}:
	case <-d.sh.done:
	}
}

// checkStuck fails if an attempt of the run was given up and still runs: the run must not
// begin again beside it.
func (d *dispatcher) checkStuck(id machine.ID) error {
	for h, returned := range d.stuck {
		if h.run == id && !returned {
			return fmt.Errorf("%w: an attempt of run %s was given up, but its handler has not returned; wait until it does, or restart the process in which it runs", ErrState, id)
		}
	}
	return nil
}

// progress records the progress of an attempt.
func (d *dispatcher) progress(key attemptKey, attempt int, progress json.RawMessage) error {
	if rec, ok := d.o.m.Report(key.run, key.step, attempt, progress, d.o.turn.now); ok {
		d.o.turn.must(&rec)
	}
	return nil
}

// stopAttempts has the attempts of a run end when that is stored.
func (d *dispatcher) stopAttempts(run *machine.Run, cause error) {
	for i := range run.Steps {
		if a := d.running[attemptKey{run.ID, i}]; a != nil {
			d.stops = append(d.stops, stop{a, cause})
		}
	}
}

// releaseAll ends all attempts, because the engine is being closed or the shard given
// away.
func (d *dispatcher) releaseAll() {
	cause := ErrShutdown
	if d.sh.given.Load() {
		cause = errHandover
	}
	for _, a := range d.running {
		a.end(cause)
	}
}

// abandon ends all attempts, and gives their places back. Their results are not stored.
func (d *dispatcher) abandon() {
	for _, a := range d.launches {
		a.ended.Store(true) // it did not begin
		if a.lent {
			a.left.Store(true)
		} else {
			a.leave()
		}
	}
	for _, a := range d.running {
		a.end(ErrClosed)
		if a.reported.Load() {
			a.leave()
		}
	}
	d.sh.places.leave(d.sh)
	d.suspects.leave()
}

// lendPlaces lets other shards have the places of attempts that can't begin, or whose end
// can't be stored, for as long as nothing can.
func (d *dispatcher) lendPlaces() {
	sh := d.sh
	for _, a := range d.launches {
		if !a.lent {
			a.lent = true
			sh.places.give()
			sh.quarantine.exit()
			a.trial.end()
		}
	}
	for _, a := range d.running {
		if a.reported.Load() {
			a.leave()
		}
	}
	sh.places.leave(sh) // it can't use one
	d.suspects.leave()
}

// reclaimPlaces takes the places back. For a while there may be more attempts than there
// should be.
func (d *dispatcher) reclaimPlaces() {
	for _, a := range d.launches {
		if a.lent {
			a.lent = false
			d.sh.places.reclaim()
			d.sh.quarantine.reenter()
		}
	}
}

// places are how many attempts the process may make. Its shards share them.
type places struct {
	mu      sync.Mutex
	free    int
	waiting []*shard // shards that found none, the first first
}

// take takes a place for the shard. If there is none, the shard is woken when there may be
// one.
func (p *places) take(sh *shard) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free > 0 {
		p.free--
		return true
	}
	if !slices.Contains(p.waiting, sh) {
		p.waiting = append(p.waiting, sh)
	}
	return false
}

// none reports whether no place is free.
func (p *places) none() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free <= 0
}

// reclaim takes a place that was lent, whether there is one or not.
func (p *places) reclaim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free--
}

// give gives a place back.
func (p *places) give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free++; p.free > 0 {
		p.wakeFirst()
	}
}

// pass lets the next shard have what this one did not need.
func (p *places) pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free > 0 {
		p.wakeFirst()
	}
}

// wakeFirst wakes the first shard that waits. It needs the lock.
func (p *places) wakeFirst() {
	if len(p.waiting) == 0 {
		return
	}
	first := p.waiting[0]
	p.waiting = slices.Delete(p.waiting, 0, 1)
	select {
	case first.room <- struct{}{}:
	default: // it is woken already
	}
}

// leave forgets a shard that has ended.
func (p *places) leave(sh *shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(h *shard) bool { return h == sh })
	if p.free > 0 {
		p.wakeFirst()
	}
}
