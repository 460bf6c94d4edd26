package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// settle is how long a step waits for its handler to be registered after the
// engine was opened, before that is recorded.
const settle = 2 * time.Second

// due takes what the time has brought: runs that are over, schedules.
func (sh *shard) due() {
	t := &sh.turn
	for _, run := range sh.m.Due(t.now, dueAtOnce) {
		rec := sh.m.Expire(run, sh.openedAt.UnixNano(), t.now)
		t.must(&rec)
	}
	sh.fire()
	sh.purge()
	sh.endIsolation()
	sh.unpark()
}

// must records what the machine has decided itself. That it could contradict the
// state would be an error of this program, which stops the engine at the commit.
func (t *turn) must(rec *machine.Record) {
	if err := t.record(rec); err != nil {
		t.sh.health.broken(err)
	}
}

// dispatch begins attempts while there are places: of suspects, and then one of each queue in
// turn. A suspect that has to run alone comes last, or no other attempt would ever begin.
func (sh *shard) dispatch() {
	sh.turn.full, sh.turn.held = false, false
	sh.dispatchSuspects()
	sh.dispatchQueues()
	sh.isolate()
}

func (sh *shard) dispatchQueues() {
	for begun := true; begun && !sh.turn.full && !sh.turn.held && sh.entry.Size() < fullEntry; {
		begun = false
		queues := sh.m.Busy()
		for i := range queues {
			q := queues[(i+sh.turn.offset)%len(queues)]
			if sh.turn.full || sh.turn.held || sh.entry.Size() >= fullEntry {
				break
			}
			if sh.dispatchFrom(q) {
				begun = true
			}
		}
		sh.turn.offset++
	}
	sh.turn.more = sh.entry.Size() >= fullEntry
}

// dispatchFrom begins an attempt from the queue, if there may be one.
func (sh *shard) dispatchFrom(q *machine.Queue) bool {
	t := &sh.turn
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
		return sh.parkStep(run, step)
	}
	if !sh.process.quarantine.enter(sh) {
		t.held = true
		return false
	}
	if !sh.process.places.take(sh) {
		sh.process.quarantine.exit()
		t.full = true
		return false
	}
	rec := sh.m.Attempt(run, step, t.now)
	sh.launch(run, step, handler, nil, &rec)
	return true
}

// parkStep lets a step wait for its handler, once there was time to register it.
func (sh *shard) parkStep(run *machine.Run, step int) bool {
	if time.Since(sh.openedAt) < settle {
		return false
	}
	rec := sh.m.Park(run, step, sh.turn.now)
	sh.turn.must(&rec)
	return true
}

// launch records that an attempt begins, and has it begun when that is stored.
func (sh *shard) launch(run *machine.Run, step int, handler Handler, trial *trial, rec *machine.Record) {
	t := &sh.turn
	t.must(rec)
	a := sh.newAttempt(run, step, handler, rec)
	a.trial = trial
	t.launches = append(t.launches, a)
}

func (sh *shard) newAttempt(run *machine.Run, step int, handler Handler, rec *machine.Record) *attempt {
	def := &run.Def.Steps[step]
	a := &attempt{
		sh: sh, key: attemptKey{run.ID, step}, number: rec.Attempt, handler: handler, def: run.Def, silence: def.Heartbeat,
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
	sh.running[a.key] = a
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
func limit(p retry.Policy) int {
	if p.Attempts == 0 {
		return 1
	}
	return p.Attempts
}

// concluded takes the end of an attempt.
func (sh *shard) concluded(r *machine.Result) {
	t := &sh.turn
	key := attemptKey{r.Run, r.Step}
	if a := sh.running[key]; a != nil && a.number == r.Attempt {
		delete(sh.running, key)
		a.leave()
		if r.Outcome.Class == retry.ClassStuck {
			z := zombie{key, r.Attempt}
			if sh.zombies[z] {
				delete(sh.zombies, z)
			} else {
				sh.zombies[z] = false
			}
		}
	}
	if rec, ok := sh.m.Finish(r, t.now, sh.random()); ok {
		t.must(&rec)
	}
}

// zombie is an attempt that was given up while its handler was running.
type zombie struct {
	attemptKey
	number int
}

// unstuck says that a handler which was given up has returned after all. The owner
// may hear of that before it hears that the attempt was given up.
func (sh *shard) unstuck(z zombie) {
	sh.stuck.Add(-1)
	select {
	case sh.others <- &request{do: func(*turn) error {
		if _, known := sh.zombies[z]; known {
			delete(sh.zombies, z)
		} else {
			sh.zombies[z] = true
		}
		return nil
	}}:
	case <-sh.done:
	}
}

// attemptsOf returns the attempts of the run that are being made.
func (sh *shard) attemptsOf(run *machine.Run) (list []*attempt) {
	for i := range run.Steps {
		if a := sh.running[attemptKey{run.ID, i}]; a != nil {
			list = append(list, a)
		}
	}
	return list
}

// releaseAll tells all attempts that the engine is being closed, or the shard
// given away.
func (sh *shard) releaseAll() {
	cause := ErrShutdown
	if sh.given.Load() {
		cause = errHandover
	}
	for _, a := range sh.running {
		a.end(cause)
	}
}

// unpark lets steps go on whose handlers are known by now.
func (sh *shard) unpark() {
	sh.handlers.mu.RLock()
	version := sh.handlers.version
	sh.handlers.mu.RUnlock()
	if version == sh.known {
		return
	}
	sh.known = version
	t := &sh.turn
	var recs []machine.Record
	for name := range sh.m.ParkedHandlers() {
		if sh.handlers.handler(name) == nil {
			continue
		}
		sh.m.Parked(name, func(run *machine.Run, step int) {
			recs = append(recs, sh.m.Unpark(run, step, t.now))
		})
	}
	for i := range recs {
		t.must(&recs[i])
	}
}

// purgeEvery is how often it is looked for what is kept long enough.
func (sh *shard) purgeEvery() time.Duration {
	return min(time.Hour, sh.cfg.Retention/20, sh.cfg.DeadRetention/20)
}

// purge forgets what is kept long enough.
func (sh *shard) purge() {
	// A snapshot needs an entry to begin at.
	idle := sh.snapshots.log == 0 && sh.snapshots.idle(sh)
	if now := time.Now(); idle || now.Sub(sh.purgedAt) >= sh.purgeEvery() {
		sh.purgedAt = now
		t := &sh.turn
		if rec, ok := sh.purgeRecord(t.now); ok || idle {
			t.must(&rec)
		}
		sh.viewer.expire = true
	}
}
