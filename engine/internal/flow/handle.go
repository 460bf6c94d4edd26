package flow

import (
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
