package flow

import (
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// Begin records that the function of a run is called. It is called when the record is stored. isProbe says
// that only the code may have changed.
func (a *Calls) Begin(t Turn, run *machine.Run, w *workflow.Workflow, ticket admission.Ticket, rec machine.Record, isProbe bool) *admission.Ticket {
	t.Record(rec)
	count, size := run.Flow().Called()
	c := &call{
		settings: a.settings, ticket: ticket, run: run.ID, workflow: w, number: rec.Attempt, def: run.Def, known: a.settings.Registry.Version(), task: TaskOf(run),
		results: run.Flow().Results(), pending: run.Flow().Pending(), count: count, stopped: make(chan struct{}),
		status: run.Flow().Status(), tags: machine.DecodeTags(run.Flow().Tags()), former: machine.FormerChildren(run), previous: run.Previous(),
	}
	if a.settings.Replay != nil {
		c.previous = machine.ID{} // the engine does not have that run
	}
	if run.HasEnded() {
		c.history = slices.Clip(run.History)
	}
	c.groups = c.oneGroup[:0]
	c.leaves.Store(1)
	c.undoing.Store(run.Flow().IsUndoing())
	c.undoable.Store(int32(run.Flow().Undoable()))
	c.size.Store(int64(size))
	c.since = a.now
	c.isProbe = isProbe
	a.running[run.ID] = c
	a.begun = append(a.begun, c)
	return &c.ticket
}

// Handle handles a message of a call.
func (a *Calls) Handle(t Turn, m *Message) {
	c := m.call
	if m.kind == callEnded {
		a.endCall(t, c)
		return
	}
	run, ok := t.State().Run(c.run)
	if !ok || a.running[c.run] != c || run.Outcome != machine.Undecided {
		return // the call is over
	}
	switch m.kind {
	case groupCalled:
		a.startGroup(t, c, m.group)
	case opRecorded:
		if !run.Flow().IsUndoing() {
			callOp(t, run, m.op)
			c.since = a.now
			c.size.Add(int64(len(m.op.Data)))
		}
	case branchEnded:
		if !c.stopping {
			a.suspendIdle(t, c, run)
		}
	case functionFailed:
		if !run.Flow().IsUndoing() {
			a.recordStatus(t, c, run)
			t.Record(machine.FailFunction(run, m.result, t.Now()))
		}
	default:
	}
}

// BeginTurn is told the time when a turn begins.
func (a *Calls) BeginTurn(now time.Time) { a.now = now }

// Stop stops the call of a run when the turn is stored.
func (a *Calls) Stop(run machine.ID, cause error) {
	if c := a.running[run]; c != nil {
		c.stopping = true
		a.stops = append(a.stops, stop{c, cause})
	}
}

// StopAll stops all calls at once.
func (a *Calls) StopAll(cause error) {
	for _, c := range a.running {
		c.stop(cause)
	}
}

// Abandon stops all calls at once, when the owner has stopped.
func (a *Calls) Abandon(cause error) {
	for _, c := range a.running {
		a.forget(c)
		c.stop(cause)
	}
	a.carryOutStops()
}

// Act begins and stops calls as the turn has decided, which must be stored.
func (a *Calls) Act() {
	a.carryOutStops()
	for i, c := range a.begun {
		a.settings.Running.Add(1)
		go c.main()
		a.begun[i] = nil
	}
	a.begun = a.begun[:0]
}

func (a *Calls) carryOutStops() {
	for i, s := range a.stops {
		s.stop(s.cause)
		a.stops[i] = stop{}
	}
	a.stops = a.stops[:0]
}

// Lend lets others use the places of calls that can't begin, and of those that have ended, while the shard
// can't store anything.
func (a *Calls) Lend() {
	for _, c := range a.begun {
		c.ticket.Lend()
	}
	for _, c := range a.running {
		if c.ended.Load() {
			c.ticket.Lend()
		}
	}
}

// Reclaim takes back the places that Lend lent for calls that begin now, even if none is free.
func (a *Calls) Reclaim() {
	for _, c := range a.begun {
		c.ticket.Reclaim()
	}
}

// startGroup begins the operations that the function of a call waits for.
func (a *Calls) startGroup(t Turn, c *call, g *Group) {
	if g.kind.Waits != machine.ForAttempts {
		// The function may have called the operation after the turn began. A wait must not begin
		// before its call.
		t.ReadClock()
	}
	c.groups = append(c.groups, g)
	c.signalUntil = 0
	a.continueGroup(t, c, g)
}

// continueGroup begins the next operations of the group, as many as may run side by side. If none
// is left, it wakes the function. If all wait for long, it suspends the function. A function that
// is being stopped calls the operations again when it is called again. The group must be one of
// call.groups.
func (a *Calls) continueGroup(t Turn, c *call, g *Group) {
	run, ok := t.State().Run(c.run)
	if !ok || run.Outcome != machine.Undecided || c.stopping {
		return
	}
	a.recordStatus(t, c, run)
	if a.isHeldBack(g) {
		a.suspendIdle(t, c, run)
		return
	}
	for ; g.running < g.parallel && g.next < g.n; g.next++ {
		i := g.next
		_, called := g.numbers[i]
		if g.Results[i].Name == "" && (called || !g.stops() && (g.isUndo() || !run.Flow().IsUndoing())) {
			a.beginOperation(t, c, run, Operation{g, i})
		}
	}
	if g.running == 0 {
		k := slices.Index(c.groups, g)
		c.groups = slices.Delete(c.groups, k, k+1)
		c.since = a.now
		g.end()
		return
	}
	a.suspendIdle(t, c, run)
}

// beginOperation begins an operation, which the run may have called before.
func (a *Calls) beginOperation(t Turn, c *call, run *machine.Run, op Operation) {
	g, i := op.Group, op.index
	number, called := g.numbers[i]
	var rec machine.Record
	var ticket admission.Ticket
	switch {
	case called:
		deliverKept(t, run, number, g.identity(i))
	case g.child != nil:
		number = a.callChild(t, g, run, i)
	default:
		call := g.opCall(i, t.Now())
		if g.inline && g.kind.Waits == machine.ForAttempts {
			ticket, call.Begin = t.TakeNow(run, g.def)
		}
		rec = callOp(t, run, call)
		number = rec.Step
	}
	if run.Step(number) == nil {
		// It has ended after the call of the function began, or it waits for a signal that
		// has come before.
		g.setResult(i, storedResult(run, number, g.identity(i)))
		return
	}
	c.ops.set(number, op)
	g.running++
	if g.child != nil && !run.Flow().IsUndoing() {
		a.startPending(t, c, g, run, number, i)
	}
	if rec.Begins() {
		t.Begin(run, op, ticket, rec)
		return
	}
	t.State().Offer(run, number, t.Now())
}

// deliverKept gives an operation that waits for a signal by its earlier name one that the run has got
// by the name which the function gives the operation now: see Renamed.
func deliverKept(t Turn, run *machine.Run, number int, identity string) {
	if run.Flow().Identity(number) == identity || t.CheckFormat(machine.ChildFormat) != nil {
		return
	}
	if rec, ok := machine.DeliverKept(run, number, identity, t.Now()); ok {
		t.Record(rec)
	}
}

// callOp records the call of an operation.
func callOp(t Turn, run *machine.Run, call *machine.OpCall) machine.Record {
	if call.Def != nil {
		t.Define(call.Def)
	}
	rec := machine.CallOp(run, call, t.Now())
	t.Record(rec)
	return rec
}

// OpEnded tells the call of a function that an attempt of one of its operations has ended. After a
// pause, this may be another call than the one that began the attempt.
func (a *Calls) OpEnded(t Turn, run *machine.Run, rec *machine.Record) {
	c := a.running[run.ID]
	if c == nil {
		return
	}
	op := c.ops.get(rec.Step)
	if op.IsZero() {
		return
	}
	if run.Step(rec.Step) != nil { // it has not ended, and waits
		a.suspendIdle(t, c, run)
		return
	}
	c.ops.remove(rec.Step)
	g := op.Group
	g.running--
	if rec.Reason != 0 {
		c.size.Add(int64(len(rec.Text)))
	}
	g.setResult(op.index, outcomeOf(g.identity(op.index), rec))
	a.continueGroup(t, c, g)
}

// Signaled tells the call of a run's function that a signal has come, or that a child has ended.
func (a *Calls) Signaled(t Turn, id machine.ID, rec *machine.Record) {
	if c := a.running[id]; c != nil {
		c.size.Add(int64(len(rec.Data)))
	}
	if run, ok := t.State().Run(id); ok && rec.Step > 0 {
		a.OpEnded(t, run, rec)
	}
}

// BeginUndo tells the call of a run that the run undoes its operations from now on: no other one begins.
func (a *Calls) BeginUndo(t Turn, run *machine.Run) {
	c := a.running[run.ID]
	if c == nil {
		return
	}
	c.undoable.Store(int32(run.Flow().Undoable()))
	c.undoing.Store(true)
	for number, op := range maps.Collect(c.ops.all) {
		if run.Step(number) == nil { // it has ended with the record
			c.ops.remove(number)
			op.running--
			op.setResult(op.index, storedResult(run, number, op.identity(op.index)))
		}
	}
	for _, g := range slices.Backward(c.groups) { // the loop may remove the group
		if a.running[run.ID] == c { // else it is suspended
			a.continueGroup(t, c, g)
		}
	}
}
