package contend

import (
	"errors"

	"github.com/tideover/tideover/retry"
)

// What a writer's error may be, for errors.Is.
var (
	// ErrRetries says that every attempt was used up.
	ErrRetries = errors.New("max proposal retries exceeded")
	// ErrTimeout says that the proposal's time was over.
	ErrTimeout = errors.New("proposal timed out")
	// ErrUnsure says that the value may have been written nevertheless.
	ErrUnsure = errors.New("outcome unknown")
)

// Error is what a writer returns when it gives up. It unwraps to one of the
// errors above, and to the last conflict or failure.
type Error struct {
	Err    *retry.Error // why, after how many attempts, and the failures
	Unsure bool         // the value may have been written nevertheless
}

// Exceeded returns the error of a proposal whose attempts ended for the reason,
// for programs that call [retry.Decide] instead of a [Writer]. last is
// its last failure.
func Exceeded(why retry.Reason, attempts int, last error) *Error {
	return &Error{Err: &retry.Error{Reason: why, Attempts: attempts, Last: last}, Unsure: errors.Is(last, ErrUnsure)}
}

// Error says why there is no further attempt, and how the last one failed.
func (e *Error) Error() string {
	text := e.Err.Error()
	if why := e.kind(); why != nil {
		text = why.Error()
		if e.Err.Last != nil {
			text += ": " + e.Err.Last.Error()
		}
	}
	if e.Unsure {
		text += " (" + ErrUnsure.Error() + ")"
	}
	return text
}

// kind returns the sentinel that the reason stands for, if there is one.
func (e *Error) kind() error {
	switch e.Err.Reason {
	case retry.StopAttempts:
		return ErrRetries
	case retry.StopTotalTimeout, retry.StopDeadline:
		return ErrTimeout
	default:
		return nil
	}
}

// Unwrap returns what the error is, and what the runner said.
func (e *Error) Unwrap() []error {
	errs := []error{e.Err}
	if why := e.kind(); why != nil {
		errs = append(errs, why)
	}
	if e.Unsure {
		errs = append(errs, ErrUnsure)
	}
	return errs
}

// RetryOutcome tells a runner around the writer that what may have been written
// must not be written again.
func (e *Error) RetryOutcome() retry.Outcome {
	if e.Unsure {
		return retry.Outcome{Class: retry.ClassPermanent}
	}
	return e.Err.RetryOutcome()
}
