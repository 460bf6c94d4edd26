package admission

import (
	"slices"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
)

// Limit is a limit of a workflow, and how much of it is used.
type Limit struct {
	For        string // what a step waits for if the limit is reached, as [info.Held] has it
	Most, Used int
}

// IsReached reports whether the limit keeps steps from beginning.
func (l Limit) IsReached() bool { return l.Most > 0 && l.Used >= l.Most }

// explain makes h say that the limit keeps a step from beginning.
func (l Limit) explain(h *info.Held) { h.For, h.Limit = l.For, l.Most }

// StepLimits are the limits that concern a step, in the order in which they are checked. The zero value of
// a limit means that there is none.
type StepLimits [2]Limit

// Limits returns the limits that concern a step of the run in this queue. They answer all questions
// about limits: which step is next, why one has not begun, and which limits are part of a deadlock. What
// is used is counted by the state machine, where each attempt begins: see countBegun in its queue.go. The
// counts are not stored, and a run that is in a queue is in memory, with its input.
func (a *Admission) Limits(q *machine.Queue, run *machine.Run) (list StepLimits) {
	all := a.limitsOf(q.Workflow.Name)
	if all.Runs > 0 && !run.HasPlace() {
		list[0] = Limit{info.HeldByRuns, all.Runs, q.Workflow.Active}
	}
	if most := all.Attempts[q.Step]; most > 0 {
		list[1] = Limit{info.HeldByAttempts, most, q.Running}
	}
	return list
}

// reached returns the first limit that keeps the step from beginning.
func (l StepLimits) reached() Limit { return l.find(Limit.IsReached) }

// By returns the limit for which a step waits if it is reached, such as [info.HeldByRuns].
func (l StepLimits) By(what string) Limit {
	return l.find(func(l Limit) bool { return l.For == what })
}

func (l StepLimits) find(is func(Limit) bool) (limit Limit) {
	if i := slices.IndexFunc(l[:], is); i >= 0 {
		return l[i]
	}
	return limit
}

// NextDue returns when a step may be admitted although no run or attempt has ended; math.MaxInt64 if that
// is not known.
func (a *Admission) NextDue(m *machine.Machine) int64 {
	return a.isolated.nextDue(m)
}
