package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// The values of package [info] under the names that programs use.
type (
	// Info describes a run.
	Info = info.Info

	// RetryInfo is a summary of the retries of a run.
	RetryInfo = info.RetryInfo

	// StepInfo describes a step of a run.
	StepInfo = info.StepInfo

	// OpCounts has the numbers of the operations of a flow, or of the items of a map.
	OpCounts = info.OpCounts

	// DeclaredOp is an operation that a flow declares: see [Operation].
	DeclaredOp = info.DeclaredOp

	// Held says why a step that is due has not begun.
	Held = info.Held

	// AttemptInfo is one attempt of a step, and the wait after it.
	AttemptInfo = info.AttemptInfo

	// WaitInfo is a wait after an attempt.
	WaitInfo = info.WaitInfo

	// Note is an event of a run as a whole, or of a step between attempts.
	Note = info.Note

	// OpError is the failure of an operation.
	OpError = info.OpError

	// MapError is the error of a [Map] with failed operations.
	MapError = info.MapError

	// Question is a question that a run asks by [Ask].
	Question = info.Question

	// Answer is the answer to a [Question].
	Answer = info.Answer

	// Task describes the attempt that a handler is called for.
	Task = info.Task

	// Ended is the input of a run that is started by [OnEnd].
	Ended = info.Ended

	// GaveUp is the input of the follow-up run that [OnGiveUp] starts.
	GaveUp = info.GaveUp

	// GaveUpOperation is an operation of a flow without a result in [GaveUp].
	GaveUpOperation = info.GaveUpOperation

	// GaveUpReference says which parts of a [GaveUp] are read from the dead run.
	GaveUpReference = info.GaveUpReference

	// Event is a retry.Event with its sequence number in the event stream of the process.
	Event = info.Event

	// MemberReply is the answer of a member to [Operator.AskMembers].
	MemberReply = info.MemberReply

	// Filter says which runs [Engine.List] returns, and in which order.
	Filter = info.Filter

	// Page is a part of a list.
	Page = info.Page

	// Group is a group of dead runs that failed in the same step of the same workflow with similar errors.
	Group = info.Group

	// Groups are the groups of dead runs that [Engine.DeadGroups] returns.
	Groups = info.Groups

	// Stats has the numbers of runs by workflow and state, and of attempts, waits and queued steps.
	Stats = info.Stats

	// Totals counts runs and attempts since the log began.
	Totals = info.Totals

	// WorkflowStats counts the runs of a workflow.
	WorkflowStats = info.WorkflowStats

	// Trouble is a problem that keeps the engine from working, unless Works is true.
	Trouble = info.Trouble

	// PausedWorkflow describes the pause of a workflow: see [Engine.PauseWorkflow].
	PausedWorkflow = info.PausedWorkflow

	// ClusterInfo has the members of a cluster and its shards.
	ClusterInfo = info.ClusterInfo

	// ShardInfo is a shard of a cluster, with its owner and its load.
	ShardInfo = info.ShardInfo

	// Schedule starts runs of a workflow at the times of a cron expression.
	Schedule = info.Schedule

	// PausedSchedule describes the pause of a schedule: see [Engine.PauseSchedule].
	PausedSchedule = info.PausedSchedule

	// RefusedStart describes a scheduled start that was due and refused: its input could not be prepared, or its workflow is not registered.
	RefusedStart = info.RefusedStart
)

// The states of a run, as [Info.State] has them.
const (
	StateScheduled    = info.StateScheduled    // its start time is in the future
	StateQueued       = info.StateQueued       // an attempt is due, and waits for a free place, or until its workflow is resumed
	StateRunning      = info.StateRunning      // an attempt is running
	StateWaiting      = info.StateWaiting      // waits for the time of the next attempt
	StateNeedsHandler = info.StateNeedsHandler // waits until the handler of a step is registered
	StatePaused       = info.StatePaused       // stopped by Pause
	StateUndoing      = info.StateUndoing      // undoes its operations, and ends then: see DoUndo
	StateSucceeded    = info.StateSucceeded
	StateDead         = info.StateDead // gave up; Retry continues it
	StateCanceled     = info.StateCanceled
	StateReplaced     = info.StateReplaced // was dead, and was replaced by a replay or rerun
)

// The errors that [Info.Err] returns wrap one of these.
var (
	ErrDead     = info.ErrDead
	ErrCanceled = info.ErrCanceled
	ErrReplaced = info.ErrReplaced
)

// ErrNoEvent says that no signal came in the time of [Within]. The error of [Await] matches it.
var ErrNoEvent = info.ErrNoEvent

// The choices of a [Question] that has none.
const (
	Approve = info.Approve
	Reject  = info.Reject
)

// Output returns the decoded output of a run that has succeeded. The output of a run with
// several last steps is an object with the output of each. For other runs the error says
// why there is no output.
func Output[T any](i *Info) (v T, err error) {
	if err := i.Err(); err != nil {
		return v, err
	}
	if i.State != StateSucceeded {
		return v, fmt.Errorf("run %s: no output yet: it is %s", i.ID, i.State)
	}
	if len(i.Output) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(i.Output, &v); err != nil {
		return v, fmt.Errorf("run %s: output: %w", i.ID, err)
	}
	return v, nil
}

// ErrClosed says that the engine has been closed, or has stopped because of an error.
var ErrClosed = shard.ErrClosed

// Errors that callers can test for with errors.Is.
var (
	ErrNotFound = machine.ErrUnknown   // no run has this id
	ErrState    = machine.ErrState     // the command is not possible in the current state of the run
	ErrConflict = machine.ErrConflict  // the key belongs to a run of another workflow
	ErrTooLarge = workflow.ErrTooLarge // an input, a result or a request is larger than its limit
)

// ErrTooManySignals says that a run has too many signals that its function has not waited for.
var ErrTooManySignals = machine.ErrSignals

// ErrInput says that an input is not JSON, can't be prepared, or can't be decoded as the
// input type of the workflow's steps.
var ErrInput = workflow.ErrInput

// ErrAway says that the shard of a run, or a shard that may have the run, did not answer.
// It may answer later.
var ErrAway = shard.ErrAway

// ErrUnknownWorkflow says that no workflow of the name is registered.
var ErrUnknownWorkflow = shard.ErrUnknownWorkflow

// ErrNoSchedule says that there is no schedule of the name.
var ErrNoSchedule = shard.ErrNoSchedule

// ErrMayNotAnswer says that a question is for others.
var ErrMayNotAnswer = shard.ErrMayNotAnswer

// ErrNotAChoice says that an answer is none of the choices of its question.
var ErrNotAChoice = shard.ErrNotAChoice

// ErrSignalUsed says that a run has got a signal with the id before: see [Once].
var ErrSignalUsed = shard.ErrSignalUsed

// ErrOldMember says that a run can't be started, or a workflow paused, yet, because a process of
// the cluster has an older release, which can't read it. Nothing was started or paused: finish the
// rolling deploy, and try again.
var ErrOldMember = shard.ErrOldMember

// The engine cancels the context of an attempt with one of these causes: see context.Cause.
var (
	// ErrShutdown says that the engine is being closed. The attempt will be made
	// again, and does not count for the policy.
	ErrShutdown = shard.ErrShutdown

	// ErrTimeout says that the timeout of the attempt or the total timeout of its step
	// is over.
	ErrTimeout = shard.ErrTimeout

	// ErrSilent says that the attempt sent no [Heartbeat] within its HeartbeatTimeout.
	ErrSilent = shard.ErrSilent

	// ErrPaused says that the run was paused or postponed. The attempt will be made
	// again when the run continues, and does not count for the policy.
	ErrPaused = shard.ErrPaused
)

// ErrNotStored says that a change waits, because the log can't be written: see [StoreWithin]. It may
// be stored later, or not.
var ErrNotStored = shard.ErrNotStored

// StoreWithin returns a context for calls that change something, such as [Engine.Start]: if the log
// can't be written for this long, such as on a full disk, they return [ErrNotStored] with the reason.
// If that has been so before the call, they return at once. Without it they wait until the log can be
// written or their context ends.
func StoreWithin(ctx context.Context, d time.Duration) context.Context {
	return shard.StoreWithin(ctx, d)
}
