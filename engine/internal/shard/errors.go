package shard

import (
	"context"
	"errors"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/internal/workflow"
)

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

// fault is an error as it is sent from one process to another.
type fault struct {
	Kind string `json:"kind,omitempty"` // a key of faults, or "untaken" for NotAccepted; "" for other errors
	Text string `json:"text"`
}

// faults has the errors that keep their identity when they are sent: errors.Is matches them
// in the other process too.
var faults = map[string]error{
	"not-found": machine.ErrUnknown, "state": machine.ErrState, "conflict": machine.ErrConflict, "too-large": workflow.ErrTooLarge, "old-member": ErrOldMember, "signals": machine.ErrSignals, "signal-used": ErrSignalUsed, "may-not-answer": ErrMayNotAnswer, "not-a-choice": ErrNotAChoice, "cursor": view.ErrCursor, "no-schedule": ErrNoSchedule,
	"closed": ErrClosed, "away": ErrAway, "busy": ErrBusy, "call": ErrCall, "deadline": context.DeadlineExceeded, "canceled": context.Canceled,
}

// NewFault returns the error as it is sent; nil for nil.
func NewFault(err error) *fault {
	if err == nil {
		return nil
	}
	f := &fault{Text: err.Error()}
	for kind, is := range faults {
		if errors.Is(err, is) {
			f.Kind = kind
		}
	}
	if _, ok := errors.AsType[NotAccepted](err); ok {
		f.Kind = "untaken"
	}
	return f
}

// Err returns the error that was sent; nil for nil.
func (f *fault) Err() error {
	if f == nil {
		return nil
	}
	if f.Kind == "untaken" {
		return NotAccepted{&remote{f.Text, ErrClosed}}
	}
	return &remote{f.Text, faults[f.Kind]}
}

// remote is an error of another process: its text, and the error of faults that it matches.
type remote struct {
	text string
	is   error
}

func (r *remote) Error() string { return r.text }

func (r *remote) Unwrap() error { return r.is }
