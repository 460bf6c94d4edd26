package engine

import (
	"context"
	"errors"

	"github.com/tideover/tideover/engine/internal/view"
)

// fault is an error on its way from one process to another.
type fault struct {
	Kind string `json:"kind,omitempty"`
	Text string `json:"text"`
}

var (
	errCall = errors.New("a request that is not understood")
	errBusy = errors.New("the owner of the shard has too much to do")
)

// faults are the errors that are the same on both sides.
var faults = map[string]error{
	"not-found": ErrNotFound, "state": ErrState, "conflict": ErrConflict, "too-large": ErrTooLarge, "cursor": view.ErrCursor,
	"closed": ErrClosed, "away": ErrAway, "busy": errBusy, "call": errCall, "deadline": context.DeadlineExceeded, "canceled": context.Canceled,
}

// faultOf returns the error as it is sent.
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

// err returns the error as it was.
func (f *fault) err() error {
	if f == nil {
		return nil
	}
	if f.Kind == "untaken" {
		return notAccepted{&remote{f.Text, ErrClosed}}
	}
	return &remote{f.Text, faults[f.Kind]}
}

// remote is an error of another process.
type remote struct {
	text string
	is   error
}

func (r *remote) Error() string { return r.text }
func (r *remote) Unwrap() error { return r.is }

// notAccepted is the error of a shard that has not read a request: another owner can be
// asked.
type notAccepted struct{ error }

func (e notAccepted) Unwrap() error { return e.error }
