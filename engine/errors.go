package engine

import (
	"context"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/workflow"
)

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
