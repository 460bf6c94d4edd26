package shard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// dispatcher begins the attempts that the admission allows, and knows the running attempts. Its
// methods need the turn of the owner, or are called by the owner.
type dispatcher struct {
	process *Process
	state   *state
	health  *health
	host    *attemptHost

	running  map[attemptKey]*Attempt
	launches []*Attempt // attempts to begin when the entry is stored

	calls     flow.Calls                   // of functions of flows
	stops     []stop                       // attempts to cancel when the entry is stored
	known     int64                        // version of the registry at the last check of parked steps
	unchecked int                          // runs, the first ones of all, that callChanged has still to check
	probed    map[*machine.Definition]bool // definitions of which callChanged has called a run
	probes    map[machine.ID]bool          // runs that callChanged has called and whose call has not begun

	offset    int  // index of the queue to begin with
	more      bool // the entry was full before all queues were empty: another turn must follow at once
	admission admission.Admission
}

// stop is an attempt whose context is to be canceled with a cause.
type stop struct {
	*Attempt
	cause error
}

// dispatch begins attempts while places are free: first attempts of suspects, then one from each queue
// in turn. A suspect that has to run alone comes last, because no other attempt can begin while it waits.
func (d *dispatcher) dispatch(t Recorder) {
	d.admission.Restart()
	d.dispatchSuspects(t)
	d.dispatchQueues(t)
	d.dispatchAlone(t)
}

// dispatchSuspects begins attempts of suspects that do not have to run alone.
func (d *dispatcher) dispatchSuspects(t Recorder) {
	for !t.IsFull() {
		run, step, ok := d.admission.NextSuspect(d.state.m, d.isReady)
		if !ok || !d.beginStep(t, run, step, d.admission.TakeSuspect) {
			return
		}
	}
}

// beginStep begins an attempt of a step, or calls its function, if take returns a ticket. A step whose code is missing
// is parked. It returns whether the step has left its queue.
func (d *dispatcher) beginStep(t Recorder, run *machine.Run, step int, take func(*machine.Run, int) (admission.Ticket, bool)) bool {
	code, ok, isGone := d.codeOf(t, run, step)
	if !ok {
		return isGone
	}
	ticket, ok := take(run, step)
	if !ok {
		return false
	}
	rec := machine.BeginAttempt(run, step, t.Now())
	d.launch(t, run, step, code, ticket, &rec)
	return true
}

// dispatchAlone begins the attempt of a suspect that has to run alone.
func (d *dispatcher) dispatchAlone(t Recorder) {
	run, step, ok := d.admission.NextAlone(d.state.m, d.isReady, t.IsFull())
	if !ok {
		return
	}
	if d.admission.HasSurvived() {
		d.more = true // try again in the next turn
		return
	}
	code, ok, _ := d.codeOf(t, run, step)
	if !ok {
		return
	}
	ticket, alone, ok := d.admission.TakeAlone(run, step)
	if !ok {
		return
	}
	lasts := machine.Isolation(run, step)
	rec := machine.BeginAttempt(run, step, t.Now())
	if alone {
		rec.Isolate(lasts)
	}
	d.admission.BeganAlone(d.launch(t, run, step, code, ticket, &rec), lasts)
	d.process.Settings.Logger.Warn("the process died in the last attempts of a step: its next attempt begins, and no other attempt begins for a while",
		"run", run.ID, "step", run.StepName(step), "lost", machine.Losses(run, step), "alone", alone, "for", lasts)
}

// isReady reports whether the code of a step is there, or is missing for good: in the registration time it
// may still be registered.
func (d *dispatcher) isReady(run *machine.Run, step int) bool {
	return !d.state.isRegistering() || d.process.Handlers.HasCode(run, step)
}

func (d *dispatcher) dispatchQueues(t Recorder) {
	for begun := true; begun && !d.admission.IsHeld() && !t.IsFull(); {
		begun = false
		queues := d.state.m.Busy()
		for i := range queues {
			q := queues[(i+d.offset)%len(queues)]
			if d.admission.IsHeld() || t.IsFull() {
				break
			}
			begun = d.dispatchFrom(t, q) || begun
		}
		d.offset++
	}
	d.more = t.IsFull()
}

// dispatchFrom begins an attempt of the first step in the queue, if the admission allows it. It returns
// whether the step has left the queue. A step whose code is missing is parked, unless its workflow has
// reached its limits.
func (d *dispatcher) dispatchFrom(t Recorder, q *machine.Queue) bool {
	run, step, ok := d.admission.Next(q)
	return ok && d.beginStep(t, run, step, d.admission.Take)
}

// codeOf returns the code of a step. If there is none, the step is parked, or the function that calls it is called
// again. isGone says that the step has left its queue.
func (d *dispatcher) codeOf(t Recorder, run *machine.Run, step int) (code dueCode, ok, isGone bool) {
	switch {
	case run.IsFunction(step):
		code.function = d.functionOf(run)
		ok = code.function != nil
	case !run.IsFlow():
		code.handler = d.process.Handlers.Handler(run.StepDef(step).Handler)
		ok = code.handler.Do != nil
	default:
		if code.op, ok = d.calls.Operation(run.ID, step); !ok { // no function is waiting for it
			d.state.m.Withdraw(run, step)
			d.state.m.CallAgain(run)
			return code, false, true
		}
	}
	return code, ok, !ok && d.parkStep(t, run, step)
}

// functionOf returns the workflow with the function of a flow; nil if it is not registered.
func (d *dispatcher) functionOf(run *machine.Run) *workflow.Workflow {
	return d.process.Handlers.Function(run.Def.Steps[0].Handler, run.Def.Name)
}

// heldSteps returns why steps of the run that are due have not begun, of the first ones.
func (d *dispatcher) heldSteps(run *machine.Run) map[int]*info.Held {
	held := map[int]*info.Held{}
	for n, s := range run.Live() {
		if s.Status == machine.Waiting && run.InQueue(n) {
			held[n] = d.admission.Why(run, n)
		}
		if len(held) == maxHeld {
			break
		}
	}
	return held
}

// maxHeld is the number of steps of a run for which heldSteps has reasons, at most.
const maxHeld = 1000

// parkStep records that a step waits for its handler. It does nothing during the registration
// time, in which the handler may still be registered.
func (d *dispatcher) parkStep(t Recorder, run *machine.Run, step int) bool {
	if d.state.isRegistering() {
		return false
	}
	if log := d.process.replay; log != nil {
		log.Report(replay.Verdict{Parked: missingHandler(run, step)})
	}
	t.Record(machine.Park(run, step, t.Now()))
	return true
}

// unpark records that steps continue which waited for a handler that is registered now.
func (d *dispatcher) unpark(t Recorder) {
	version := d.process.Handlers.Version()
	if version == d.known {
		return
	}
	d.known = version
	d.unchecked, d.probed, d.probes = d.state.m.Len(), map[*machine.Definition]bool{}, map[machine.ID]bool{}
	var recs []machine.Record
	for name := range d.state.m.ParkedHandlers() {
		d.state.m.Parked(name, func(run *machine.Run, step int) {
			w := d.process.Handlers.Function(name, run.Def.Name)
			if w == nil && d.process.Handlers.Handler(name).Do == nil {
				return
			}
			if d.calls.Fits(run.ID, w) {
				d.calls.Forget(run.ID)
				recs = append(recs, machine.Unpark(run, step, t.Now()))
			}
		})
	}
	for i := range recs {
		t.Record(recs[i])
	}
}

// checkedAtOnce is the number of runs that callChanged checks in a turn.
const checkedAtOnce = 1000

// callChanged calls functions again that were suspended, because their code may be other code
// now. Of the runs with the same definition that may wait for ever, it calls one: that shows what the
// code has removed and renamed. It calls all runs that wait in a removed operation, or in a renamed
// one whose signal has come. It checks some runs in each turn. Runs that begin later, which are behind
// the others, need no check.
func (d *dispatcher) callChanged() {
	all := d.state.m.All()
	d.unchecked = min(d.unchecked, len(all))
	for n := 0; n < checkedAtOnce && d.unchecked > 0; n++ {
		d.unchecked--
		run := all[d.unchecked]
		if !run.IsSuspended() || !d.process.Handlers.HasCode(run, 0) {
			continue
		}
		if d.waitsInChanged(run) || machine.WaitsForEver(run) && !d.probed[run.Def] {
			d.probed[run.Def], d.probes[run.ID] = true, true
			d.state.m.CallAgain(run)
		}
	}
}

// waitsInChanged reports whether the run waits in an operation that its function has removed, or has
// renamed to that of a signal which the run has got, as far as that is known.
func (d *dispatcher) waitsInChanged(run *machine.Run) bool {
	said := d.process.Handlers.EditsOf(d.functionOf(run))
	if len(said.Removed)+len(said.Renamed) == 0 {
		return false
	}
	waits, err := d.state.m.WaitsIn(run, func(name string, kept []string) bool {
		name = machine.BaseName(name)
		return slices.Contains(said.Removed, name) || slices.ContainsFunc(kept, func(signal string) bool { return slices.Contains(said.EarlierNames(signal), name) })
	})
	if err != nil {
		d.health.logError("a run can't be read to call its function again", "run", run.ID, "error", err)
	}
	return waits
}

// resumed calls the function of a run again that was paused when callChanged checked it.
func (d *dispatcher) resumed(run *machine.Run) {
	if run.IsSuspended() && d.process.Handlers.HasCode(run, 0) && (machine.WaitsForEver(run) || d.waitsInChanged(run)) {
		d.state.m.CallAgain(run)
	}
}

// launch records that an attempt of a step begins, or that the function of a flow is called. Its code is called
// when the record is stored. launch returns where the ticket is.
func (d *dispatcher) launch(t Recorder, run *machine.Run, step int, code dueCode, ticket admission.Ticket, rec *machine.Record) *admission.Ticket {
	if code.function != nil {
		isProbe := d.probes[run.ID]
		delete(d.probes, run.ID)
		return d.calls.Begin(t, run, code.function, ticket, *rec, isProbe)
	}
	t.Record(*rec)
	return &d.begin(run, step, code.stepCode, ticket, rec).ticket
}

// begin begins an attempt whose beginning is recorded, when the record is stored.
func (d *dispatcher) begin(run *machine.Run, step int, code stepCode, ticket admission.Ticket, rec *machine.Record) *Attempt {
	def, state := run.StepDef(step), run.Step(step)
	a := &Attempt{
		host: d.host, key: attemptKey{run.ID, step}, number: rec.Attempt, stepCode: code, ticket: ticket,
		def: run.Def, outputs: slices.Clone(run.Outputs()), silence: def.Heartbeat,
	}
	if d.process.Settings.Extract != nil {
		a.trace = machine.Trace(run)
	}
	t := &a.Task
	if !a.op.IsZero() {
		*t = a.op.Task(run, step)
	} else {
		*t = flow.TaskOf(run)
		t.Input, t.Step = slices.Clone(run.Input), def.Name
	}
	t.Attempt, t.Attempts, t.Total = int(state.Spent)+1, limit(def.Policy), rec.Attempt
	t.Args, t.Progress, t.Spent, t.Windows = def.Args, slices.Clone(run.Progress(step)), int(state.Spent), int(state.Windows)
	// The attempt needs no timeout for the deadline of the run: the owner ends the run.
	if rec.Deadline != 0 && rec.Deadline != run.Deadline {
		if a.timeout = time.Duration(rec.Deadline - rec.At); a.timeout <= 0 {
			total := def.Policy.TotalTimeout
			a.timeout, a.handler.Do = 0, func(context.Context, *info.Task) ([]byte, error) {
				return nil, fmt.Errorf("%w: the step's total timeout of %v ended in the queue for a free place; the handler was not called", ErrTimeout, total)
			}
		}
	}
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	d.running[a.key] = a
	d.launches = append(d.launches, a)
	return a
}

// act begins and cancels attempts as the turn has decided. The turn must be stored, which took that long.
func (d *dispatcher) act(storing time.Duration) {
	for i, a := range d.launches {
		a.storing = storing
		d.host.running.Add(1)
		if a.op.IsZero() || !a.op.Pass(a) {
			go a.Make()
		}
		d.launches[i] = nil
	}
	d.launches = d.launches[:0]
	d.calls.Act()
	for i, s := range d.stops {
		s.end(s.cause)
		d.stops[i] = stop{}
	}
	d.stops = d.stops[:0]
	d.admission.Stored()
}

// conclude records the end of an attempt.
func (d *dispatcher) conclude(t Recorder, r *machine.Result) {
	key := attemptKey{r.Run, r.Step}
	if a := d.running[key]; a != nil && a.number == r.Attempt {
		delete(d.running, key)
		a.ticket.Give(a.quick)
		if r.Outcome.Class == retry.ClassStuck {
			d.host.stuck.note(stuckHandler{key, r.Attempt}, false)
			d.calls.LeaveStuck(t, a.op)
		}
	}
	if rec, ok := flow.Finish(t, r); ok {
		t.Record(rec)
		if run, ok := d.state.m.Run(r.Run); ok && run.IsFlow() {
			d.calls.OpEnded(t, run, &rec)
		}
	}
}

// stopRun cancels the contexts of all attempts of a run, and of its function, when the turn is stored.
func (d *dispatcher) stopRun(run *machine.Run, cause error) {
	d.stopAttempts(run, cause, func(int) bool { return true })
	d.calls.Stop(run.ID, cause)
}

// stopAttempts cancels the contexts of the attempts of some steps of a run when the turn is stored.
func (d *dispatcher) stopAttempts(run *machine.Run, cause error, of func(step int) bool) {
	for n := range run.Live() {
		if a := d.running[attemptKey{run.ID, n}]; a != nil && of(n) {
			d.stops = append(d.stops, stop{a, cause})
		}
	}
}

// releaseAll cancels the contexts of all attempts, because the engine is being closed or
// another process takes over the shard.
func (d *dispatcher) releaseAll(isHandover bool) {
	cause := ErrShutdown
	if isHandover {
		cause = handover{}
	}
	for _, a := range d.running {
		a.end(cause)
	}
	d.calls.StopAll(cause)
}

// abandon cancels all attempts and gives back their places, when the owner has stopped. Their
// results are not stored.
func (d *dispatcher) abandon() {
	d.lendPlaces() // for good
	for _, a := range d.launches {
		a.ended.Store(true) // its handler was never called
		a.ticket.Drop()
	}
	for _, a := range d.running {
		a.end(ErrClosed)
	}
	d.calls.Abandon(ErrClosed)
}

// lendPlaces lets other shards use the places of this shard while it can't store anything: those
// of attempts and calls of functions that can't begin, and of those that have ended.
func (d *dispatcher) lendPlaces() {
	for _, a := range d.launches {
		a.ticket.Lend()
	}
	for _, a := range d.running {
		if a.reported.Load() {
			a.ticket.Give(a.quick)
		}
	}
	d.calls.Lend()
	d.admission.Leave()
}

// reclaimPlaces takes back the places that lendPlaces lent for attempts and calls of functions that
// begin now, even if none is free. Their handlers wait for those of other attempts.
func (d *dispatcher) reclaimPlaces() {
	for _, a := range d.launches {
		a.ticket.Reclaim()
	}
	d.calls.Reclaim()
}
