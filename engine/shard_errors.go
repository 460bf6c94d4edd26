package engine

import "errors"

// ErrClosed says that the engine has been closed, or has stopped because of an error.
var ErrClosed = errors.New("the engine is closed")

// ErrAway says that the shard of a run, or a shard that may have the run, did not answer.
// It may answer later.
var ErrAway = errors.New("did not answer")

var (
	errCall = errors.New("malformed or unknown request of another process")
	errBusy = errors.New("the owner of the shard has too much to do")
)

// notAccepted is the error of a shard that has stopped or is stopping. The request has changed
// nothing, so it is safe to send it to the next owner.
type notAccepted struct{ error }

func (e notAccepted) Unwrap() error { return e.error }

// ErrNotStored says that a change waits, because the log can't be written: see [StoreWithin]. It may
// be stored later, or not.
var ErrNotStored = errors.New("the log can't be written; the change may be stored when that works again")

// ErrUnknownWorkflow says that no workflow of the name is registered.
var ErrUnknownWorkflow = errors.New("no workflow of this name is registered")

// ErrNoSchedule says that there is no schedule of the name.
var ErrNoSchedule = errors.New("there is no schedule of this name")

// ErrMayNotAnswer says that a question is for others.
var ErrMayNotAnswer = errors.New("may not answer this question")

// ErrNotAChoice says that an answer is none of the choices of its question.
var ErrNotAChoice = errors.New("not one of the choices")

// ErrSignalUsed says that a run has got a signal with the id before: see [Once].
var ErrSignalUsed = errors.New("a signal with this id has come before")

// ErrOldMember says that a run can't be started, or a workflow paused, yet, because a process of
// the cluster has an older release, which can't read it. Nothing was started or paused: finish the
// rolling deploy, and try again.
var ErrOldMember = errors.New("a member of the cluster has an older release")

// The engine cancels the context of an attempt with one of these causes: see context.Cause.
var (
	// ErrShutdown says that the engine is being closed. The attempt will be made
	// again, and does not count for the policy.
	ErrShutdown = errors.New("the engine is being closed")

	// errHandover matches ErrShutdown. It says that another process takes over the shard.
	errHandover error = handover{}

	// ErrTimeout says that the timeout of the attempt or the total timeout of its step
	// is over.
	ErrTimeout = errors.New("attempt timed out")

	// ErrSilent says that the attempt sent no [Heartbeat] within its HeartbeatTimeout.
	ErrSilent = errors.New("no heartbeat")

	// ErrPaused says that the run was paused or postponed. The attempt will be made
	// again when the run continues, and does not count for the policy.
	ErrPaused = errors.New("the run is paused")
)

// handover is the type of errHandover. It matches ErrShutdown, because the attempt is released
// in the same way. But the engine keeps running: only one shard moves to another process.
type handover struct{}

func (handover) Error() string { return "the run goes on in another process" }

func (handover) Is(target error) bool { return target == ErrShutdown }
