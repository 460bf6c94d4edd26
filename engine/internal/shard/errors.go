package shard

import "errors"

// Errors that callers can test for with errors.Is: package engine says when they are returned.
var (
	ErrClosed          = errors.New("the engine is closed")
	ErrAway            = errors.New("did not answer")
	ErrNotStored       = errors.New("the log can't be written; the change may be stored when that works again")
	ErrUnknownWorkflow = errors.New("no workflow of this name is registered")
	ErrNoSchedule      = errors.New("there is no schedule of this name")
	ErrMayNotAnswer    = errors.New("may not answer this question")
	ErrNotAChoice      = errors.New("not one of the choices")
	ErrSignalUsed      = errors.New("a signal with this id has come before")
	ErrOldMember       = errors.New("a member of the cluster has an older release")
)

// Errors between members of a cluster.
var (
	ErrCall = errors.New("malformed or unknown request of another process")
	ErrBusy = errors.New("the owner of the shard has too much to do")
)

// NotAccepted is the error of a shard that has stopped or is stopping. The request has changed
// nothing, so it is safe to send it to the next owner.
type NotAccepted struct{ error }

func (e NotAccepted) Unwrap() error { return e.error }

// The owner cancels the context of an attempt with one of these causes.
var (
	ErrShutdown = errors.New("the engine is being closed")
	ErrTimeout  = errors.New("attempt timed out")
	ErrSilent   = errors.New("no heartbeat")
	ErrPaused   = errors.New("the run is paused")
)

// handover is the cause if another process takes over the shard. It matches ErrShutdown, because the attempt is
// released in the same way. But the engine keeps running.
type handover struct{}

func (handover) Error() string { return "the run goes on in another process" }

func (handover) Is(target error) bool { return target == ErrShutdown }
