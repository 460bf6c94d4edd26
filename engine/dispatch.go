package engine

import (
	"context"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// settle is how long a step waits for its handler to be registered after the
// engine was opened, before that is recorded.
const settle = 2 * time.Second

// due takes what the time has brought: runs that are over, schedules.
func (e *Engine) due() {
	t := &e.turn
	for _, run := range e.m.Due(t.now, dueAtOnce) {
		rec := e.m.Expire(run, t.now)
		t.must(&rec)
	}
	e.fire()
	e.purge()
	e.unpark()
}

// must records what the machine has decided itself. That it could contradict the
// state would be an error of this program, which stops the engine at the commit.
func (t *turn) must(rec *machine.Record) {
	if err := t.record(rec); err != nil {
		t.e.health.broken(err)
	}
}

// dispatch begins attempts while there are places, one of each queue in turn.
func (e *Engine) dispatch() {
	for begun := true; begun && e.slots < e.cfg.Concurrency && e.entry.Size() < fullEntry; {
		begun = false
		queues := e.m.Busy()
		for i := range queues {
			q := queues[(i+e.turn.offset)%len(queues)]
			if e.slots >= e.cfg.Concurrency || e.entry.Size() >= fullEntry {
				break
			}
			if e.dispatchFrom(q) {
				begun = true
			}
		}
		e.turn.offset++
	}
	e.turn.more = e.entry.Size() >= fullEntry
}

// dispatchFrom begins an attempt from the queue, if there may be one.
func (e *Engine) dispatchFrom(q *machine.Queue) bool {
	t := &e.turn
	runs, attempts := e.handlers.limits(q.Workflow.Name, q.Step)
	if attempts > 0 && q.Running >= attempts {
		return false
	}
	run, step, ok := q.First(runs == 0 || q.Workflow.Active < runs)
	if !ok {
		return false
	}
	handler := e.handlers.handler(run.Def.Steps[step].Handler)
	if handler == nil {
		if time.Since(e.openedAt) < settle {
			return false
		}
		rec := e.m.Park(run, step, t.now)
		t.must(&rec)
		return true
	}
	rec := e.m.Attempt(run, step, t.now)
	t.must(&rec)
	t.launches = append(t.launches, e.newAttempt(run, step, handler, &rec))
	return true
}

func (e *Engine) newAttempt(run *machine.Run, step int, handler Handler, rec *machine.Record) *attempt {
	def := &run.Def.Steps[step]
	a := &attempt{
		e: e, key: attemptKey{run.ID, step}, number: rec.Attempt, handler: handler, def: run.Def, silence: def.Heartbeat,
		task: Task{
			Run: run.ID.String(), Workflow: run.Def.Name, Key: run.Key, Step: def.Name, Attempt: rec.Attempt,
			Attempts: limit(def.Policy), Created: time.Unix(0, run.Created), Source: run.Source(), Args: def.Args, Input: slices.Clone(run.Input),
			Progress: slices.Clone(run.Progress(step)), Spent: int(run.Steps[step].Spent), Windows: int(run.Steps[step].Windows),
		},
	}
	a.outputs = slices.Clone(run.Outputs())
	// At the run's own deadline the owner ends it, and says why.
	if rec.Deadline != 0 && rec.Deadline != run.Deadline {
		a.timeout = max(time.Duration(rec.Deadline-rec.At), 1)
	}
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	e.running[a.key] = a
	e.slots++
	return a
}

// limit returns how many attempts a policy allows.
func limit(p retry.Policy) int {
	if p.Attempts == 0 {
		return 1
	}
	return p.Attempts
}

// concluded takes the end of an attempt.
func (e *Engine) concluded(r *machine.Result) {
	t := &e.turn
	key := attemptKey{r.Run, r.Step}
	if a := e.running[key]; a != nil && a.number == r.Attempt {
		delete(e.running, key)
		e.slots--
		if r.Outcome.Class == retry.ClassStuck {
			z := zombie{key, r.Attempt}
			if e.zombies[z] {
				delete(e.zombies, z)
			} else {
				e.zombies[z] = false
			}
		}
	}
	if rec, ok := e.m.Finish(r, t.now, e.random()); ok {
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
func (e *Engine) unstuck(z zombie) {
	e.stuck.Add(-1)
	select {
	case e.others <- &request{do: func(*turn) error {
		if _, known := e.zombies[z]; known {
			delete(e.zombies, z)
		} else {
			e.zombies[z] = true
		}
		return nil
	}}:
	case <-e.done:
	}
}

// attemptsOf returns the attempts of the run that are being made.
func (e *Engine) attemptsOf(run *machine.Run) (list []*attempt) {
	for i := range run.Steps {
		if a := e.running[attemptKey{run.ID, i}]; a != nil {
			list = append(list, a)
		}
	}
	return list
}

// releaseAll tells all attempts that the engine is being closed.
func (e *Engine) releaseAll() {
	for _, a := range e.running {
		a.end(ErrShutdown)
	}
}

// unpark lets steps go on whose handlers are known by now.
func (e *Engine) unpark() {
	e.handlers.mu.RLock()
	version := e.handlers.version
	e.handlers.mu.RUnlock()
	if version == e.known {
		return
	}
	e.known = version
	t := &e.turn
	var recs []machine.Record
	for name := range e.m.ParkedHandlers() {
		if e.handlers.handler(name) == nil {
			continue
		}
		e.m.Parked(name, func(run *machine.Run, step int) {
			recs = append(recs, e.m.Unpark(run, step, t.now))
		})
	}
	for i := range recs {
		t.must(&recs[i])
	}
}

// purgeEvery is how often it is looked for what is kept long enough.
func (e *Engine) purgeEvery() time.Duration {
	return min(time.Hour, e.cfg.Retention/20, e.cfg.DeadRetention/20)
}

// purge forgets what is kept long enough.
func (e *Engine) purge() {
	// A snapshot needs an entry to begin at.
	idle := e.snapshots.log == 0 && e.snapshots.idle(e)
	if now := time.Now(); idle || now.Sub(e.purgedAt) >= e.purgeEvery() {
		e.purgedAt = now
		t := &e.turn
		if rec, ok := e.m.Purge(t.now-int64(e.cfg.Retention), t.now-int64(e.cfg.DeadRetention)); ok || idle {
			t.must(&rec)
		}
		e.viewer.expire = true
	}
}
