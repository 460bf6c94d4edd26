package engine

import (
	"context"
	"errors"

	"github.com/tideover/tideover/engine/internal/view"
)

// fault is an error as it is sent from one process to another.
type fault struct {
	Kind string `json:"kind,omitempty"` // a key of faults, or "untaken" for notAccepted; "" for other errors
	Text string `json:"text"`
}

// faults has the errors that keep their identity when they are sent: errors.Is matches them
// in the other process too.
var faults = map[string]error{
	"not-found": ErrNotFound, "state": ErrState, "conflict": ErrConflict, "too-large": ErrTooLarge, "old-member": ErrOldMember, "signals": ErrTooManySignals, "signal-used": ErrSignalUsed, "may-not-answer": ErrMayNotAnswer, "not-a-choice": ErrNotAChoice, "cursor": view.ErrCursor, "no-schedule": ErrNoSchedule,
	"closed": ErrClosed, "away": ErrAway, "busy": errBusy, "call": errCall, "deadline": context.DeadlineExceeded, "canceled": context.Canceled,
}

// faultOf returns the error as it is sent; nil for nil.
func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	f := &fault{Text: err.Error()}
	for kind, is := range faults {
		if errors.Is(err, is) {
			f.Kind = kind
		}
	}
	if _, ok := errors.AsType[notAccepted](err); ok {
		f.Kind = "untaken"
	}
	return f
}

// err returns the error that was sent; nil for nil.
func (f *fault) err() error {
	if f == nil {
		return nil
	}
	if f.Kind == "untaken" {
		return notAccepted{&remote{f.Text, ErrClosed}}
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
