package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/retry"
)

// suspendAfter is how long all operations that a function waits for must have to wait, at least,
// for the call of the function to end until then.
const suspendAfter = time.Second

// minFunctions is the smallest limit of function calls at once. They wait for their operations,
// and need no processor: the limit is for the memory that they use.
const minFunctions = 1024

// callFunction records that the function of a run is called. It is called when the record is
// stored. trial is nil if the function is not a suspect.
func (d *dispatcher) callFunction(run *machine.Run, w *Workflow, trial *trial, rec *machine.Record) {
	d.o.turn.must(rec)
	count, size := run.CalledOps()
	c := &flowCall{
		sh: d.sh, run: run.ID, workflow: w, number: rec.Attempt, handler: run.Def.Steps[0].Handler, known: d.sh.handlers.version.Load(), task: taskOf(run), version: run.Def.Version, input: run.Input, // nothing changes it
		results: run.Results(), pending: run.Pending(), count: count, stopped: make(chan struct{}),
		status: run.Status(), tags: decodeTags(run.Tags()), former: run.FormerChildren(), previous: run.Previous(),
	}
	if d.sh.replay != nil {
		c.previous = machine.ID{} // the engine does not have that run
	}
	if run.HasEnded() {
		c.history = slices.Clip(run.History)
	}
	if strings.HasPrefix(c.handler, functionPrefix) {
		c.declared = run.Def.Ops
	}
	c.leaves.Store(1)
	c.undoing.Store(run.IsUndoing())
	c.undoable.Store(int32(run.Undoable()))
	c.size.Store(int64(size))
	if trial != nil {
		// The quarantine needs an attempt. This one has no place, and no handler.
		c.suspect = &attempt{sh: d.sh, key: attemptKey{run.ID, 0}, number: rec.Attempt, trial: trial}
		c.suspect.ctx, c.suspect.cancel = context.WithCancelCause(context.Background())
		c.suspect.ended.Store(true)
		c.suspect.left.Store(true)
		d.running[c.suspect.key] = c.suspect
	}
	c.since = time.Now()
	c.isProbe = d.probes[run.ID]
	delete(d.probes, run.ID)
	d.flows[run.ID] = c
	d.calls = append(d.calls, c)
}

// startGroup begins the operations that the function of a call waits for.
func (d *dispatcher) startGroup(c *flowCall, g *opGroup) {
	if d.flows[c.run] != c {
		return // the call is over
	}
	if g.def == nil {
		// The function may have called the sleep after the turn began. A sleep must not begin
		// before its call.
		if err := d.o.turn.readClock(); err != nil {
			d.sh.health.broken(err)
		}
	}
	c.groups.add(g)
	c.lingerUntil = 0
	d.continueGroup(c, g)
}

// continueGroup begins the next operations of the group, as many as may run side by side. If none
// is left, it wakes the function. If all wait for long, it suspends the function. A function that
// is being stopped calls the operations again when it is called again. The group must be one of
// flowCall.groups.
func (d *dispatcher) continueGroup(c *flowCall, g *opGroup) {
	t := &d.o.turn
	run, ok := d.o.m.Run(c.run)
	if !ok || run.Outcome != machine.Undecided || c.stopping {
		return
	}
	d.recordStatus(c, run)
	if d.isHeldBack(g) {
		d.suspendIdle(c, run)
		return
	}
	for ; g.running < g.parallel && g.next < g.n; g.next++ {
		i := g.next
		number, called := g.numbers[i]
		if g.results[i].Name != "" || !called && (g.stops() || run.IsUndoing() && !g.isUndo) {
			continue
		}
		var rec machine.Record
		switch {
		case called:
			d.deliverKept(run, number, g.identity(i))
		case g.child != nil:
			number = d.callChild(g, run, i)
		default:
			call := g.opCall(i, t.now)
			call.Begin = g.inline && d.takeAtOnce(run, g.def)
			rec = d.callOp(run, call)
			number = rec.Step
		}
		if run.Step(number) == nil {
			// It has ended after the call of the function began, or it waits for a signal that
			// has come before.
			g.setResult(i, storedResult(run, number, g.identity(i)))
			continue
		}
		c.ops.add(number, groupItem{g, i})
		g.running++
		if g.child != nil && !run.IsUndoing() {
			d.startPending(c, g, run, number, i)
		}
		if rec.Attempt > 0 {
			d.begin(run, number, groupItem{g, i}.handle, nil, &rec)
			continue
		}
		d.o.m.Offer(run, number, t.now)
	}
	if g.running == 0 {
		c.groups.remove(g)
		c.since = time.Now()
		g.end()
		return
	}
	d.suspendIdle(c, run)
}

// deliverKept gives an operation that waits for a signal by its earlier name one that the run has got
// by the name which the function gives the operation now: see Renamed.
func (d *dispatcher) deliverKept(run *machine.Run, number int, identity string) {
	if run.Identity(number) == identity || d.sh.checkMembers(machine.ChildFormat) != nil {
		return
	}
	if rec, ok := d.o.m.DeliverKept(run, number, identity, d.o.turn.now); ok {
		d.o.turn.must(&rec)
	}
}

// setResult sets the result of an operation that has ended.
func (g *opGroup) setResult(i int, res machine.OpResult) {
	g.failed = g.failed || res.Reason != 0
	if g.isMap {
		g.results[i] = res
	} else {
		g.endWith(res) // unless the attempt has delivered it
	}
}

// storedResult returns the result of an operation that has ended. The operation may have another
// name since.
func storedResult(run *machine.Run, number int, identity string) (res machine.OpResult) {
	for res = range machine.ReadResults(run.Results()) {
		if res.Number == number {
			break
		}
	}
	res.Name = identity
	return res
}

// opCall returns the call of an operation of the group.
func (g *opGroup) opCall(i int, now int64) *machine.OpCall {
	call := &machine.OpCall{Name: g.identity(i), Def: g.def, About: g.question, Undo: g.undoable}
	if g.def == nil && (!g.isAwait || g.sleep > 0) {
		call.Due = calendar(time.Unix(0, now).Add(g.sleep))
	}
	return call
}

// callOp records the call of an operation.
func (d *dispatcher) callOp(run *machine.Run, call *machine.OpCall) machine.Record {
	t := &d.o.turn
	if call.Def != nil {
		_ = t.define(call.Def) // an error stops the shard
	}
	rec := d.o.m.Call(run, call, t.now)
	t.must(&rec)
	return rec
}

// takeAtOnce takes a place for the first attempt of an operation that is called now, if it need not
// wait in a queue: no other attempt waits there, and most places are free.
func (d *dispatcher) takeAtOnce(run *machine.Run, def *machine.Definition) bool {
	sh := d.sh
	if def == nil || d.o.stopping || d.o.turn.isFull() || !d.o.m.CanBegin(run, def) || sh.places.few() {
		return false
	}
	if _, limit := sh.handlers.limits(def.Name, def.Steps[0].Name); limit > 0 || !sh.quarantine.enter(sh) {
		return false
	}
	if !sh.places.take(sh) {
		sh.quarantine.exit()
		return false
	}
	return true
}

// recordOp records an operation that ended with its call.
func (d *dispatcher) recordOp(c *flowCall, call *machine.OpCall) {
	if run, ok := d.o.m.Run(c.run); ok && d.flows[c.run] == c && run.Outcome == machine.Undecided && !run.IsUndoing() {
		d.callOp(run, call)
		c.since = time.Now()
		c.size.Add(int64(len(call.Data)))
	}
}

// recordStatus records the status and the tags that the function has set, if they have changed.
func (d *dispatcher) recordStatus(c *flowCall, run *machine.Run) {
	status, tags, ok := c.description()
	if !ok {
		return
	}
	if tags == run.Tags() {
		tags = "" // unchanged
	}
	if status = d.sh.errorText(status); status == run.Status() && tags == "" {
		return
	}
	rec := d.o.m.Describe(run, status, tags, d.o.turn.now)
	d.o.turn.must(&rec)
}

// suspendIdle ends the call of a function if it and all its branches wait for operations, and all
// these have to wait for long.
func (d *dispatcher) suspendIdle(c *flowCall, run *machine.Run) {
	if c.starting > 0 || !c.waits() {
		return
	}
	if next := d.heldBack(c); next != nil {
		d.suspend(c, run)
		d.report(replay.Verdict{Next: next})
		return
	}
	for number := range c.ops.numbers {
		s := run.Step(number)
		item, _ := c.ops.get(number)
		switch {
		case item.isAwait && !c.isProbe && d.lingers.stay(c, d.o.turn.now):
			return
		case s != nil && s.Status == machine.Blocked: // it waits for a signal without a limit, or for a child
		case s != nil && s.Status == machine.Waiting && item.def != nil && run.Pause() != nil: // it begins when the workflow is resumed
		case s == nil || s.Status != machine.Waiting || run.InQueue(number) || s.At-d.o.turn.now < int64(suspendAfter):
			return
		}
	}
	d.suspend(c, run)
}

// suspend ends the call of a function that waits for operations.
func (d *dispatcher) suspend(c *flowCall, run *machine.Run) {
	if wrong := c.firstWrong(); wrong != nil {
		d.dropCall(c, errSuspended)
		d.parkCall(c, run, wrong.Error())
		return
	}
	rec := d.o.m.Suspend(run, c.awaited(), d.o.turn.now)
	d.o.turn.must(&rec)
	d.dropCall(c, errSuspended)
	if c.known != d.sh.handlers.version.Load() && d.sh.handlers.function(c.handler, run.Def.Name) != c.workflow {
		d.o.m.CallAgain(run) // other code is deployed, and callChanged may have passed the run
	}
}

// leaveStuck suspends the function whose goroutine makes the attempt, which is stuck: the function is
// called again in another goroutine.
func (d *dispatcher) leaveStuck(a *attempt) {
	if !a.inline() || d.flows[a.key.run] != a.flow {
		return
	}
	if run, ok := d.o.m.Run(a.key.run); ok && run.Outcome == machine.Undecided {
		d.suspend(a.flow, run)
	}
}

// waits reports whether the function waits for operations, and so do all its branches that have
// begun. The result of an operation may have been delivered to one of them, which continues already:
// then the operation has not ended yet.
func (c *flowCall) waits() bool {
	return c.groups.count > 0 && c.groups.count >= int(c.leaves.Load())
}

// awaited returns how many operations must end before the function or one of its branches can
// continue.
func (c *flowCall) awaited() int {
	least := math.MaxInt32
	for g := range c.groups.all {
		n := g.running
		if g.next < g.n && !g.stops() {
			n = 1 // the next operation of the map can begin then
		}
		least = min(least, n)
	}
	return least
}

// dropCall forgets a call, and makes its goroutine end when the turn is stored.
func (d *dispatcher) dropCall(c *flowCall, cause error) {
	d.forgetCall(c)
	d.flowStops = append(d.flowStops, flowStop{c, cause})
}

// forgetCall removes a call that is over.
func (d *dispatcher) forgetCall(c *flowCall) {
	delete(d.flows, c.run)
	c.lendPlace() // for good
	for g := range c.groups.all {
		select {
		case a := <-g.attempts: // the goroutine of the function has ended before it began
			if a != nil {
				go a.run()
			}
		default:
		}
	}
	if a := c.suspect; a != nil {
		delete(d.running, a.key)
		a.cancel(context.Canceled)
	}
}

// lendPlace gives back the place of the call, and ends its trial. Further calls do nothing.
func (c *flowCall) lendPlace() {
	if c.lent {
		return
	}
	c.lent = true
	c.sh.functions.give()
	if c.suspect != nil {
		c.sh.quarantine.exit()
		c.suspect.trial.end()
	}
}

// reclaimPlace takes a place for a call that begins now, even if none is free, if the place was
// lent.
func (c *flowCall) reclaimPlace() {
	if !c.lent {
		return
	}
	c.lent = false
	c.sh.functions.reclaim()
	if c.suspect != nil {
		c.sh.quarantine.reenter()
	}
}

// flowStop is a call to stop with a cause.
type flowStop struct {
	*flowCall
	cause error
}

// operationOf returns the operation that an attempt of a step is for, if the function of the run
// is waiting for it.
func (d *dispatcher) operationOf(run *machine.Run, step int) (item groupItem, ok bool) {
	if c := d.flows[run.ID]; c != nil {
		item, ok = c.ops.get(step)
	}
	return item, ok
}

// withdraw removes an operation from its queue that no function is waiting for, and has the
// function called.
func (d *dispatcher) withdraw(run *machine.Run, step int) bool {
	d.o.m.Withdraw(run, step)
	d.o.m.CallAgain(run)
	return true
}

// opEnded tells the call of a function that an attempt of one of its operations has ended. After a
// pause, this may be another call than the one that began the attempt.
func (d *dispatcher) opEnded(run *machine.Run, rec *machine.Record) {
	c := d.flows[run.ID]
	if c == nil {
		return
	}
	item, ok := c.ops.get(rec.Step)
	if !ok {
		return
	}
	if run.Step(rec.Step) != nil { // it has not ended, and waits
		d.suspendIdle(c, run)
		return
	}
	c.ops.remove(rec.Step)
	g := item.opGroup
	g.running--
	if rec.Reason != 0 {
		c.size.Add(int64(len(rec.Text)))
	}
	g.setResult(item.index, outcomeOf(g.identity(item.index), rec))
	d.continueGroup(c, g)
}

// outcomeOf returns the result of the operation that the record ends.
func outcomeOf(identity string, rec *machine.Record) machine.OpResult {
	res := machine.OpResult{Number: rec.Step, Name: identity, Ended: rec.At, Reason: rec.Reason, Data: slices.Clone(rec.Data)}
	if rec.Reason != 0 {
		res.Code, res.Text, res.Data = string(rec.Data), rec.Text, nil
	}
	return res
}

// deliver gives the result of a single operation to its function at once: the owner stores the
// result before anything that the function does next.
func (item groupItem) deliver(key attemptKey, output []byte) {
	if item.isMap {
		return
	}
	item.endWith(machine.OpResult{Number: key.step, Name: item.name, Data: output})
}

// handle is the handler of an attempt of the operation.
func (item groupItem) handle(ctx context.Context, t *Task) ([]byte, error) {
	t.encoded = true
	return item.do(ctx, item.index)
}

// reserve counts a result that is about to be reported. It returns an error, and does not count it,
// if the results of the run would be too large.
func (c *flowCall) reserve(result []byte) error {
	if c.size.Add(int64(len(result))) <= machine.MaxResults {
		return nil
	}
	c.size.Add(-int64(len(result)))
	return retry.Permanent(Coded("too-large", fmt.Errorf("the results of the run would have more than %d MiB; store them elsewhere and return references", machine.MaxResults>>20)))
}

// endCall records the end of a call.
func (d *dispatcher) endCall(c *flowCall, end flowEnd) {
	if end.result != nil && end.result.Outcome.Class == retry.ClassStuck {
		d.noteStuck(c.stuckHandler(), false)
	}
	if d.flows[c.run] != c {
		return
	}
	t := &d.o.turn
	run, ok := d.o.m.Run(c.run)
	d.forgetCall(c)
	if !ok {
		return
	}
	if run.Outcome == machine.Undecided {
		d.recordStatus(c, run)
		if run.IsUndoing() && end.forgetsUndo() {
			end = flowEnd{result: &machine.Result{Release: true, Error: errUndoing.Error()}}
		}
	}
	switch {
	case run.Outcome != machine.Undecided && end.result == nil:
		end.result = &machine.Result{}
	case end.again != nil && run.Undoable() > 0 && !end.keepDone:
		end.mismatch = fmt.Sprintf("again: the run has called operations that can be undone (%s), and the run that continues it can't undo them: call them in a child, or give up their undos by engine.Again(f, input, engine.KeepDone())", cmp.Or(end.undoable, strconv.Itoa(run.Undoable())))
		fallthrough
	case end.mismatch != "":
		d.parkCall(c, run, end.mismatch)
		return
	case d.sh.replay != nil:
		d.report(verdictOf(&end))
		return
	case end.undone != nil:
		d.endUndo(run, end.undone)
		return
	case end.again != nil:
		d.continueAs(run, c.workflow, end.again)
		return
	}
	end.result.Run, end.result.Attempt = c.run, c.number
	if rec, ok := d.o.m.Finish(end.result, t.now, d.o.random()); ok {
		t.must(&rec)
	}
}

// parkCall records that the run waits for other code, because that of the call does not fit.
func (d *dispatcher) parkCall(c *flowCall, run *machine.Run, why string) {
	d.report(replay.Verdict{Parked: d.sh.errorText(why)})
	parked := parkedCall{parkReason: parkReason{run.Def.Name, d.sh.errorText(why)}, by: c.workflow}
	if missing, ok := errors.AsType[*missingWorkflowError](c.firstWrong()); ok {
		parked.missing = missing.name
	}
	d.parked.add(c.run, parked)
	if c.known != d.sh.handlers.version.Load() {
		d.known = 0 // what it waits for may be registered already: see unpark
		d.sh.wake()
	}
	command := "tideover cancel"
	if run.Undoable() > 0 { // a cancel calls the function, to undo operations
		command += " --abandon"
	}
	text := fmt.Sprintf("%s; the run continues when code that fits is deployed; to give it up: %s %s", why, command, c.run)
	rec := d.o.m.Mismatch(run, d.sh.errorText(text), d.o.turn.now)
	d.o.turn.must(&rec)
}

// continueAs ends the run, and starts another run with the input. If the workflow is not known any
// more, the other run has the definition of this one.
func (d *dispatcher) continueAs(run *machine.Run, w *Workflow, input []byte) {
	o, t := d.o, &d.o.turn
	def := w.def
	if w.isStandIn {
		def = run.Def
	}
	t.next = followUps{again: &machine.Start{
		ID: machine.NewID(t.now, o.random(), o.random()).In(o.slot(run.Key)), Hash: def.Hash(), Input: input, Key: run.Key,
		Source: "continues " + run.ID.String(), Continues: run.ID, Trace: run.Trace(), Inbox: run.Inbox(), Parent: run.Parent(),
		Timeout: run.OwnTimeout(),
	}, againDef: def}
	rec := o.m.Continue(run, t.next.again.ID, t.now)
	t.must(&rec)
}
