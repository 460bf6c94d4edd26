package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// dispatcher begins attempts while places (see places) are free, and knows the running
// attempts. Only the owner's goroutine uses it, except for handlerReturned and the atomic stuckNow.
type dispatcher struct {
	sh *shard
	o  *owner

	running  map[attemptKey]*attempt
	stuck    map[stuckHandler]bool // stuck handlers; true if the handler returned before the owner knew that it was stuck
	stuckNow atomic.Int64          // number of stuck handlers that have not returned
	launches []*attempt            // attempts to begin when the entry is stored

	flows     map[machine.ID]*flowCall // calls of functions of flows
	checked   time.Time                // when checkFunctions was called last
	lingers   lingers
	errands   []*errand   // to begin when the turn is stored
	calls     []*flowCall // calls to begin when the entry is stored
	flowStops []flowStop  // calls to stop when the entry is stored
	parked    parkedRuns
	stops     []stop                       // attempts to cancel when the entry is stored
	known     int64                        // version of the registry at the last check of parked steps
	unchecked int                          // runs, the first ones of all, that callChanged has still to check
	probed    map[*machine.Definition]bool // definitions of which callChanged has called a run
	probes    map[machine.ID]bool          // runs that callChanged has called and whose call has not begun

	offset   int  // index of the queue to begin with
	more     bool // the entry was full before all queues were empty: another turn must follow at once
	full     bool // no place was free for another attempt
	held     bool // attempts must wait, because a suspect runs alone or is about to
	suspects suspects
}

// stop is an attempt whose context is to be canceled with a cause.
type stop struct {
	*attempt
	cause error
}

// stuckHandler identifies an attempt that failed as stuck while its handler was running.
type stuckHandler struct {
	attemptKey
	number int
}

func (d *dispatcher) init(sh *shard) {
	d.sh, d.o = sh, &sh.owner
	d.running = map[attemptKey]*attempt{}
	d.stuck = map[stuckHandler]bool{}
	d.flows, d.parked = map[machine.ID]*flowCall{}, parkedRuns{runs: map[machine.ID]parkedCall{}, reasons: map[parkReason]*parkedCount{}}
	d.suspects.d, d.lingers.sh = d, sh
}

// dispatch begins attempts while places are free: first attempts of suspects (see quarantine),
// then one from each queue in turn. A suspect that has to run alone comes last, because no
// other attempt can begin while it waits.
func (d *dispatcher) dispatch() {
	d.full, d.held = false, false
	d.suspects.dispatch()
	d.dispatchQueues()
	d.suspects.isolate()
}

func (d *dispatcher) dispatchQueues() {
	for begun := true; begun && !d.held && !d.o.turn.isFull(); {
		begun = false
		queues := d.o.m.Busy()
		for i := range queues {
			q := queues[(i+d.offset)%len(queues)]
			if d.held || d.o.turn.isFull() {
				break
			}
			begun = d.dispatchFrom(q) || begun
		}
		d.offset++
	}
	d.more = d.o.turn.isFull()
}

// dispatchFrom begins an attempt of the first step in the queue, if the limits allow it. It
// returns whether the step has left the queue. If no place is free, it only calls functions of
// flows, which need none: an attempt that has a place may wait for their runs.
func (d *dispatcher) dispatchFrom(q *machine.Queue) bool {
	if d.full && q.Step != machine.Function {
		return false
	}
	sh := d.sh
	runs, attempts := sh.handlers.limits(q.Workflow.Name, q.Step)
	if attempts > 0 && q.Running >= attempts {
		return false
	}
	run, step, ok := q.First(runs == 0 || q.Workflow.Active < runs)
	if !ok {
		return false
	}
	if run.IsFunction(step) {
		return d.dispatchFunction(run)
	}
	if d.full {
		return false
	}
	handler, missing := d.handlerOf(run, step)
	if handler == nil {
		return missing()
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

// handlerOf returns the handler of an attempt of a step. If it is nil, missing handles that: it
// returns whether the step has left its queue.
func (d *dispatcher) handlerOf(run *machine.Run, step int) (handler Handler, missing func() bool) {
	if !run.IsFlow() {
		return d.sh.handlers.handler(run.StepDef(step).Handler), func() bool { return d.parkStep(run, step) }
	}
	if item, ok := d.operationOf(run, step); ok {
		return item.handle, nil
	}
	return nil, func() bool { return d.withdraw(run, step) }
}

// dispatchFunction begins a call of the function of a run. It returns whether the function has
// left its queue.
func (d *dispatcher) dispatchFunction(run *machine.Run) bool {
	sh := d.sh
	w := sh.handlers.function(run.Def.Steps[0].Handler, run.Def.Name)
	if w == nil {
		return d.parkStep(run, 0)
	}
	if !sh.quarantine.enter(sh) {
		d.held = true
		return false
	}
	sh.quarantine.exit() // only its operations count
	if !sh.functions.take(sh) {
		return false
	}
	rec := d.o.m.Attempt(run, 0, d.o.turn.now)
	d.callFunction(run, w, nil, &rec)
	return true
}

// parkStep records that a step waits for its handler. It does nothing during the registration
// time, in which the handler may still be registered.
func (d *dispatcher) parkStep(run *machine.Run, step int) bool {
	if d.o.isRegistering() {
		return false
	}
	d.report(replay.Verdict{Parked: missingHandler(run, step)})
	rec := d.o.m.Park(run, step, d.o.turn.now)
	d.o.turn.must(&rec)
	return true
}

// unpark records that steps continue which waited for a handler that is registered now.
func (d *dispatcher) unpark() {
	version := d.sh.handlers.version.Load()
	if version == d.known {
		return
	}
	d.known = version
	d.unchecked, d.probed, d.probes = d.o.m.Len(), map[*machine.Definition]bool{}, map[machine.ID]bool{}
	t := &d.o.turn
	var recs []machine.Record
	for name := range d.o.m.ParkedHandlers() {
		d.o.m.Parked(name, func(run *machine.Run, step int) {
			w := d.sh.handlers.function(name, run.Def.Name)
			if w == nil && d.sh.handlers.handler(name) == nil {
				return
			}
			if d.parked.runs[run.ID].continues(w, &d.sh.handlers) {
				d.parked.remove(run.ID)
				recs = append(recs, d.o.m.Unpark(run, step, t.now))
			}
		})
	}
	for i := range recs {
		t.must(&recs[i])
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
	all := d.o.m.All()
	d.unchecked = min(d.unchecked, len(all))
	for n := 0; n < checkedAtOnce && d.unchecked > 0; n++ {
		d.unchecked--
		run := all[d.unchecked]
		if !run.IsSuspended() || !d.sh.handlers.hasCode(run, 0) {
			continue
		}
		if d.waitsInChanged(run) || run.WaitsForEver() && !d.probed[run.Def] {
			d.probed[run.Def], d.probes[run.ID] = true, true
			d.o.m.CallAgain(run)
		}
	}
}

// waitsInChanged reports whether the run waits in an operation that its function has removed, or has
// renamed to that of a signal which the run has got, as far as that is known.
func (d *dispatcher) waitsInChanged(run *machine.Run) bool {
	w := d.sh.handlers.function(run.Def.Steps[0].Handler, run.Def.Name)
	said := d.sh.handlers.editsOf(w)
	if len(said.removed)+len(said.renamed) == 0 {
		return false
	}
	waits, err := d.o.m.WaitsIn(run, func(name string, kept []string) bool {
		name = baseName(name)
		return slices.Contains(said.removed, name) || slices.ContainsFunc(kept, func(signal string) bool { return slices.Contains(said.earlierNames(signal), name) })
	})
	if err != nil {
		d.sh.health.logError("a run can't be read to call its function again", "run", run.ID, "error", err)
	}
	return waits
}

// resumed calls the function of a run again that was paused when callChanged checked it.
func (d *dispatcher) resumed(run *machine.Run) {
	if run.IsSuspended() && d.sh.handlers.hasCode(run, 0) && (run.WaitsForEver() || d.waitsInChanged(run)) {
		d.o.m.CallAgain(run)
	}
}

// parkedCall is a call of a function that did not fit its run. The zero value is that of a run
// which an earlier owner has parked.
type parkedCall struct {
	parkReason
	by      *Workflow // the workflow of the function
	missing string    // name of a workflow that the function wanted to start; "" if that is not why
}

// parkReason is why runs of a workflow are parked.
type parkReason struct{ workflow, why string }

// parkedRuns has the runs that wait for other code, because that of their function did not fit, and
// counts them by reason.
type parkedRuns struct {
	runs    map[machine.ID]parkedCall
	reasons map[parkReason]*parkedCount
	changed bool // health does not have the counts
}

type parkedCount struct {
	runs  int
	since time.Time
}

func (p *parkedRuns) add(run machine.ID, c parkedCall) {
	p.remove(run)
	p.runs[run], p.changed = c, true
	n := p.reasons[c.parkReason]
	if n == nil {
		n = &parkedCount{since: time.Now()}
		p.reasons[c.parkReason] = n
	}
	n.runs++
}

func (p *parkedRuns) remove(run machine.ID) {
	c, ok := p.runs[run]
	if !ok {
		return
	}
	delete(p.runs, run)
	p.changed = true
	if n := p.reasons[c.parkReason]; n.runs > 1 {
		n.runs--
	} else {
		delete(p.reasons, c.parkReason)
	}
}

// report tells health how many runs are parked, by reason.
func (p *parkedRuns) report(h *health) {
	if !p.changed {
		return
	}
	p.changed = false
	var list []Trouble
	for reason, n := range p.reasons {
		list = append(list, Trouble{
			What:  fmt.Sprintf("has parked %s of %s", textfmt.Plural(n.runs, "run"), reason.workflow),
			Since: n.since, Error: reason.why, Works: true, Runs: n.runs,
		})
	}
	slices.SortFunc(list, func(a, b Trouble) int { return cmp.Or(cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Error, b.Error)) })
	h.setParked(list[:min(len(list), maxParkReasons)])
}

// maxParkReasons limits the reasons that health reports.
const maxParkReasons = 20

// continues reports whether the run continues, because the function is that of the workflow w now,
// or because what was missing is registered.
func (p parkedCall) continues(w *Workflow, r *registry) bool {
	return p.by == nil || p.by != w || p.missing != "" && r.workflow(p.missing) != nil
}

// launch records that an attempt begins. The handler is called when the record is stored.
// trial is nil for a step that is not a suspect.
func (d *dispatcher) launch(run *machine.Run, step int, handler Handler, trial *trial, rec *machine.Record) {
	d.o.turn.must(rec)
	d.begin(run, step, handler, trial, rec)
}

// begin is launch for an attempt whose beginning is recorded.
func (d *dispatcher) begin(run *machine.Run, step int, handler Handler, trial *trial, rec *machine.Record) {
	def, state := run.StepDef(step), run.Step(step)
	a := &attempt{
		sh: d.sh, key: attemptKey{run.ID, step}, number: rec.Attempt, handler: handler, trial: trial,
		def: run.Def, outputs: slices.Clone(run.Outputs()), silence: def.Heartbeat,
	}
	if d.sh.cfg.Propagator != nil {
		a.trace = run.Trace()
	}
	t := &a.task
	if run.IsFlow() {
		a.flow = d.flows[run.ID]
		a.item, _ = a.flow.ops.get(step)
		*t = a.flow.task
		t.Input = nil // the function passes to its operations what they need
		if t.Step = run.StepName(step); run.IsUndo(step) {
			t.Step = run.Identity(step)
		}
		t.Operation = step
		if g := a.item.opGroup; g != nil && (g.undoable || g.isUndo) {
			t.Undos = run.Undos()
		}
	} else {
		*t = taskOf(run)
		t.Input, t.Step = slices.Clone(run.Input), def.Name
	}
	t.Attempt, t.Attempts, t.Total = int(state.Spent)+1, limit(def.Policy), rec.Attempt
	t.Args, t.Progress, t.Spent, t.Windows = def.Args, slices.Clone(run.Progress(step)), int(state.Spent), int(state.Windows)
	// The attempt needs no timeout for the deadline of the run: the owner ends the run.
	if rec.Deadline != 0 && rec.Deadline != run.Deadline {
		if a.timeout = time.Duration(rec.Deadline - rec.At); a.timeout <= 0 {
			a.timeout, a.handler = 0, timedOutInQueue(def.Policy.TotalTimeout)
		}
	}
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	d.running[a.key] = a
	d.launches = append(d.launches, a)
}

// timedOutInQueue returns a handler that only fails. It replaces the handler of a step whose
// total timeout ended before the attempt could begin.
func timedOutInQueue(total time.Duration) Handler {
	return func(context.Context, *Task) ([]byte, error) {
		return nil, fmt.Errorf("%w: the step's total timeout of %v ended in the queue for a free place; the handler was not called", ErrTimeout, total)
	}
}

// limit returns the number of attempts that a policy allows.
func limit(p retry.Policy) int { return cmp.Or(p.Attempts, 1) }

// act begins and cancels attempts as the turn has decided. The turn must be stored.
func (d *dispatcher) act() {
	for i, a := range d.launches {
		a.storing = d.o.turn.storing
		d.sh.attempts.Add(1)
		if a.inline() && !a.flow.stopping && !a.flow.exiting.Load() {
			a.item.attempts <- a // the function waits for it
		} else { // deferred calls of the function may take long
			go a.run()
		}
		d.launches[i] = nil
	}
	d.launches = d.launches[:0]
	for i, s := range d.flowStops {
		s.stop(s.cause)
		d.flowStops[i] = flowStop{}
	}
	d.flowStops = d.flowStops[:0]
	for i, c := range d.calls {
		d.sh.attempts.Add(1)
		go c.main()
		d.calls[i] = nil
	}
	d.calls = d.calls[:0]
	for i, s := range d.stops {
		s.end(s.cause)
		d.stops[i] = stop{}
	}
	d.stops = d.stops[:0]
	if len(d.errands) > 0 {
		if d.sh.replay == nil {
			d.sh.beginErrands(d.errands)
		}
		clear(d.errands)
		d.errands = d.errands[:0]
	}
	d.suspects.act()
}

// conclude records the end of an attempt.
func (d *dispatcher) conclude(r *machine.Result) {
	key := attemptKey{r.Run, r.Step}
	if a := d.running[key]; a != nil && a.number == r.Attempt {
		delete(d.running, key)
		a.releasePlace()
		if r.Outcome.Class == retry.ClassStuck {
			d.noteStuck(stuckHandler{key, r.Attempt}, false)
			d.leaveStuck(a)
		}
	}
	if rec, ok := d.o.m.Finish(r, d.o.turn.now, d.o.random()); ok {
		d.o.turn.must(&rec)
		if run, ok := d.o.m.Run(r.Run); ok && run.IsFlow() {
			d.opEnded(run, &rec)
		}
	}
}

// noteStuck notes that a handler is stuck, or that a stuck handler has returned. It is called
// once for each, in any order; the second call removes the handler.
func (d *dispatcher) noteStuck(h stuckHandler, returned bool) {
	if _, known := d.stuck[h]; known {
		delete(d.stuck, h)
	} else {
		d.stuck[h] = returned
	}
}

// handlerReturned notes that a stuck handler has returned. The goroutine of the handler calls
// it.
func (d *dispatcher) handlerReturned(h stuckHandler) {
	d.stuckNow.Add(-1)
	select {
	case d.sh.others <- &request{do: func(*turn) error { d.noteStuck(h, true); return nil }}:
	case <-d.sh.done:
	}
}

// checkStuck returns an error if a stuck handler of the run has not returned: the run must not
// continue beside it.
func (d *dispatcher) checkStuck(id machine.ID) error {
	for h, returned := range d.stuck {
		if h.run == id && !returned {
			return fmt.Errorf("%w: an attempt of run %s was given up, but its handler has not returned; wait until it does, or restart the process in which it runs", ErrState, id)
		}
	}
	return nil
}

// progress records the progress of an attempt, if the attempt is running.
func (d *dispatcher) progress(key attemptKey, attempt int, progress json.RawMessage) error {
	if rec, ok := d.o.m.Report(key.run, key.step, attempt, progress, d.o.turn.now); ok {
		d.o.turn.must(&rec)
	}
	return nil
}

// stopAttempts cancels the contexts of all attempts of a run when the turn is stored.
func (d *dispatcher) stopAttempts(run *machine.Run, cause error) {
	for n := range run.Live() {
		if a := d.running[attemptKey{run.ID, n}]; a != nil {
			d.stops = append(d.stops, stop{a, cause})
		}
	}
	if c := d.flows[run.ID]; c != nil {
		c.stopping = true
		d.flowStops = append(d.flowStops, flowStop{c, cause})
	}
}

// releaseAll cancels the contexts of all attempts, because the engine is being closed or
// another process takes over the shard.
func (d *dispatcher) releaseAll() {
	cause := ErrShutdown
	if d.sh.given.Load() {
		cause = errHandover
	}
	for _, a := range d.running {
		a.end(cause)
	}
	for _, c := range d.flows {
		c.stop(cause)
	}
}

// abandon cancels all attempts and gives back their places, when the owner has stopped. Their
// results are not stored.
func (d *dispatcher) abandon() {
	d.lendPlaces() // for good
	for _, a := range d.launches {
		a.ended.Store(true) // its handler was never called
		a.left.Store(true)
	}
	for _, a := range d.running {
		a.end(ErrClosed)
	}
	for _, c := range d.flows {
		d.forgetCall(c)
		c.stop(ErrClosed)
	}
	for _, s := range d.flowStops {
		s.stop(s.cause)
	}
}

// lendPlaces lets other shards use the places of this shard while it can't store anything: those
// of attempts and calls of functions that can't begin, and of those that have ended.
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
			a.releasePlace()
		}
	}
	for _, c := range d.calls {
		c.lendPlace()
	}
	for _, c := range d.flows {
		if c.ended.Load() {
			c.lendPlace()
		}
	}
	sh.places.removeShard(sh) // the shard can't use a free place now
	sh.functions.removeShard(sh)
	d.suspects.leave()
}

// reclaimPlaces takes back the places that lendPlaces lent for attempts and calls of functions that
// begin now, even if none is free. Their handlers wait for those of other attempts: see places.enter.
func (d *dispatcher) reclaimPlaces() {
	for _, a := range d.launches {
		if a.lent {
			a.lent = false
			d.sh.places.reclaim()
			d.sh.quarantine.reenter()
		}
	}
	for _, c := range d.calls {
		c.reclaimPlace()
	}
}
