package shard

import (
	"context"
	"errors"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/internal/workflow"
)

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
