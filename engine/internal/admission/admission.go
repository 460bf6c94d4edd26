// Package admission decides whether a due step may begin: whether its workflow is paused or has as many
// runs or attempts as it may have, whether the step is suspected of having killed the process, and
// whether a place is free.
package admission

import (
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// Shard is a shard of the process. It is woken when a step may begin that could not begin before.
type Shard interface{ Wake() }

// Shared is what all shards of a process share: the places, and the quarantine.
type Shared struct {
	attempts   places
	calls      places // of functions of flows
	quarantine quarantine
}

// NewShared returns a Shared for at most this many attempts and calls at the same time.
func NewShared(attempts, calls int) *Shared {
	return &Shared{
		attempts: newPlaces(attempts), calls: newPlaces(calls),
		quarantine: quarantine{wants: map[Shard]int{}, waiting: map[Shard]struct{}{}},
	}
}

// FewCalls reports whether less than half of the places of calls are free.
func (s *Shared) FewCalls() bool { return s.calls.few() }

// Counts are the numbers of a [Shared].
type Counts struct {
	Attempts, Calls int  // free places; negative if more are taken than there are
	Handlers        int  // handlers that run
	Running         int  // attempts that the quarantine counts
	Waiting         int  // shards that wait for a place of an attempt
	Isolated        bool // a suspect runs alone, or is about to
}

// Counts returns the current numbers.
func (s *Shared) Counts() (c Counts) {
	c.Attempts, c.Waiting = s.attempts.counts()
	c.Handlers = len(s.attempts.handlers)
	c.Calls, _ = s.calls.counts()
	s.quarantine.mu.Lock()
	defer s.quarantine.mu.Unlock()
	c.Running, c.Isolated = s.quarantine.running, s.quarantine.isolated != nil
	return c
}

// Admission decides for one shard. Only the owner's goroutine uses it.
type Admission struct {
	shared   *Shared
	shard    Shard
	limitsOf func(workflow string) workflow.Limits
	clock    Clock

	full     bool // no place was free for another attempt
	held     bool // no attempt may begin, because a suspect runs alone or is about to
	isolated isolated
	survived *trial // of a suspect that has run alone, to end when the turn is stored; nil if there is none
}

// Clock says what time it is in the turn of a shard.
type Clock interface{ Now() int64 }

// New returns the admission of a shard. limitsOf returns the limits of a workflow.
func New(shared *Shared, shard Shard, limitsOf func(workflow string) workflow.Limits, clock Clock) Admission {
	return Admission{shared: shared, shard: shard, limitsOf: limitsOf, clock: clock}
}

// Restart begins another round of decisions: what was full may have places again.
func (a *Admission) Restart() { a.full, a.held = false, false }

// IsFull reports whether an attempt could not begin in this round because no place was free.
func (a *Admission) IsFull() bool { return a.full }

// IsHeld reports whether nothing can begin in this round, because a suspect runs alone.
func (a *Admission) IsHeld() bool { return a.held }

// Pass wakes another shard for the places that this shard was woken for and does not need.
func (a *Admission) Pass(attempts bool) {
	if attempts {
		a.shared.attempts.give(0)
	}
	a.shared.calls.give(0)
}

// Next returns the step of the queue that may begin next, as far as the limits of its workflow are
// concerned. Functions of flows need no place of an attempt: an attempt that has one may wait for their
// runs.
func (a *Admission) Next(q *machine.Queue) (run *machine.Run, step int, ok bool) {
	if a.full && q.Step != machine.Function {
		return nil, 0, false
	}
	return q.First(func(run *machine.Run) bool { return a.Limits(q, run).reached() == Limit{} })
}

// Why returns why a step that is due has not begun; nil if it is about to begin. It takes nothing.
func (a *Admission) Why(run *machine.Run, step int) *info.Held {
	h := &info.Held{Since: time.Unix(0, run.Step(step).At)}
	limit := a.Limits(run.StepDef(step).Queue(), run).reached()
	switch p := run.Pause(); {
	case p != nil:
		h.For, h.By = info.HeldByPause, p.By
	case limit != Limit{}:
		limit.explain(h)
	case machine.Losses(run, step) > 0:
		h.For = info.HeldByQuarantine
	default:
		t := Ticket{shared: a.shared, isCall: run.IsFunction(step)}
		free, _ := t.places().counts()
		switch {
		case a.shared.Counts().Isolated:
			h.For = info.HeldByIsolation
		case free <= 0:
			h.For, h.Limit = info.HeldByPlaces, t.places().total
		default:
			return nil
		}
	}
	return h
}

// Take takes a ticket for an attempt of a step, or for a call of a function. The step must not be a
// suspect.
func (a *Admission) Take(run *machine.Run, step int) (t Ticket, ok bool) {
	return a.take(run.IsFunction(step))
}

// take is Take for a step of which is known whether it is a function.
func (a *Admission) take(isCall bool) (t Ticket, ok bool) {
	t = Ticket{shared: a.shared, isCall: isCall}
	if !a.shared.quarantine.enter(a.shard) {
		a.held = true
		return t, false
	}
	if isCall {
		a.shared.quarantine.count(-1) // only its operations count
	}
	if !t.places().take(a.shard) {
		if !isCall {
			a.shared.quarantine.count(-1)
			a.full = true
		}
		return t, false
	}
	return t, true
}

// TakeNow takes a ticket for the first attempt of an operation that the run calls now, if the attempt need
// not wait in this queue: no limit concerns it, and most places are free.
func (a *Admission) TakeNow(q *machine.Queue, run *machine.Run) (t Ticket, ok bool) {
	if a.shared.attempts.few() || a.Limits(q, run) != (StepLimits{}) || !a.shared.quarantine.enter(a.shard) {
		return t, false
	}
	if !a.shared.attempts.take(a.shard) {
		a.shared.quarantine.count(-1)
		return t, false
	}
	return Ticket{shared: a.shared}, true
}

// Leave removes the shard from those that wait: it has stopped, or it can't store.
func (a *Admission) Leave() {
	a.shared.attempts.removeShard(a.shard)
	a.shared.calls.removeShard(a.shard)
	a.LeaveQuarantine()
}
