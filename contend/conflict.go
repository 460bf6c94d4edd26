package contend

import (
	"errors"
	"fmt"

	"github.com/tideover/tideover/retry"
)

// ConflictError is the failure of an attempt that lost to another's value.
// It is what a writer tries again after.
type ConflictError struct {
	Winner any   // what won, if it is known; see [Winner]
	Err    error // what the store said; may be nil
}

// Error says what won if that has a short form, and what the store said.
func (e *ConflictError) Error() string {
	text := "lost to another's value"
	if s, ok := e.Winner.(fmt.Stringer); ok {
		text = "lost to " + s.String()
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns what the store said.
func (e *ConflictError) Unwrap() error { return e.Err }

// RetryOutcome makes a conflict a reason to try again, also if the store's error
// calls itself permanent. A delay that it states is kept.
func (e *ConflictError) RetryOutcome() retry.Outcome {
	return retry.Outcome{After: retry.OutcomeOf(e.Err).After}
}

// Lost marks an attempt as lost to the winner. Both may be nil: a store that
// has only a yes and a no for an answer has nothing to tell.
func Lost(winner any, err error) error { return &ConflictError{Winner: winner, Err: err} }

// Winner returns the value that won, if the error is a conflict that carries
// one of this type.
func Winner[V any](err error) (v V, ok bool) {
	if e, found := errors.AsType[*ConflictError](err); found {
		v, ok = e.Winner.(V)
	}
	return v, ok
}

// unsureError is the failure of an attempt that may have been written.
type unsureError struct{ err error }

func (e *unsureError) Error() string { return e.err.Error() }

func (e *unsureError) Unwrap() []error { return []error{ErrUnsure, e.err} }

func (e *unsureError) RetryOutcome() retry.Outcome { return retry.Outcome{} }

// Unsure marks the failure of an attempt that may have been written all the
// same: the answer was lost, not the value. It promises that the next attempt
// looks for the value first, in the very state on which it makes its own write
// depend; see [Try]. It returns nil for a nil error.
func Unsure(err error) error {
	if err == nil {
		return nil
	}
	return &unsureError{err}
}

// SQLConflict reports whether a database refused a transaction because of
// another one: SQLSTATE 40001, a serialisation failure, or 40P01, a deadlock.
// It knows every error that has a method SQLState() string, which those of pgx
// and lib/pq have. Give it to [WithConflicts].
func SQLConflict(err error) bool {
	e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	if !ok {
		return false
	}
	state := e.SQLState()
	return state == "40001" || state == "40P01"
}
