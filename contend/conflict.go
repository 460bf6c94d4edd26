package contend

import (
	"errors"
	"fmt"

	"github.com/tideover/tideover/retry"
)

// ConflictError is the failure of an attempt that lost to another writer's
// value. A writer retries after it.
type ConflictError struct {
	Winner any   // the winning value, if it is known; see [Winner]
	Err    error // the store's error; may be nil
}

// Error returns the winning value, if it is a [fmt.Stringer], and the store's
// error.
func (e *ConflictError) Error() string {
	text := "lost to another writer's value"
	if s, ok := e.Winner.(fmt.Stringer); ok {
		text = "lost to " + s.String()
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the store's error.
func (e *ConflictError) Unwrap() error { return e.Err }

// RetryOutcome makes a conflict retryable, even if the store's error is marked
// permanent. It keeps a delay that the store's error states.
func (e *ConflictError) RetryOutcome() retry.Outcome {
	return retry.Outcome{After: retry.OutcomeOf(e.Err).After}
}

// Lost returns the error of an attempt that lost to the winner. Both arguments
// may be nil, for a store that reports only success or failure.
func Lost(winner any, err error) error { return &ConflictError{Winner: winner, Err: err} }

// Winner returns the winning value, if the error is a conflict that carries one
// of this type.
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

// Unsure marks the failure of an attempt that may have been written: the
// response was lost. The next attempt must first check for the value, in the
// same state on which its own write depends; see [Try]. It returns nil for a
// nil error.
func Unsure(err error) error {
	if err == nil {
		return nil
	}
	return &unsureError{err}
}

// SQLConflict reports whether a database rejected a transaction because of
// another one: SQLSTATE 40001 (serialisation failure) or 40P01 (deadlock). It
// recognises every error that has a method SQLState() string, such as those of
// pgx and lib/pq. Pass it to [WithConflicts].
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
