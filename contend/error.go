package contend

import (
	"errors"

	"github.com/tideover/tideover/retry"
)

// Errors that the error of a writer matches with errors.Is.
var (
	// ErrRetries means that all attempts were used.
	ErrRetries = errors.New("max proposal retries exceeded")
	// ErrTimeout means that the total timeout or the context's deadline passed.
	ErrTimeout = errors.New("proposal timed out")
	// ErrUnsure means that the value may have been written nevertheless.
	ErrUnsure = errors.New("outcome unknown")
)

// Error is the error of a writer that gave up. It unwraps to the variables of this
// package that apply, such as [ErrRetries], and to the last conflict or failure.
type Error struct {
	Err    *retry.Error // the reason, the number of attempts, and the failures
	Unsure bool         // the value may have been written nevertheless
}

// Exceeded returns the error of a proposal that ended for the reason why, for
// programs that call [retry.Decide] instead of a [Writer]. last is the last
// failure.
func Exceeded(why retry.Reason, attempts int, last error) *Error {
	return &Error{Err: &retry.Error{Reason: why, Attempts: attempts, Last: last}, Unsure: errors.Is(last, ErrUnsure)}
}

// Error returns why there is no further attempt, and how the last one failed.
func (e *Error) Error() string {
	text := e.Err.Error()
	if why := e.sentinel(); why != nil {
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

// sentinel returns the error variable for the reason; nil if there is none.
func (e *Error) sentinel() error {
	switch e.Err.Reason {
	case retry.StopAttempts:
		return ErrRetries
	case retry.StopTotalTimeout, retry.StopDeadline:
		return ErrTimeout
	default:
		return nil
	}
}

// Unwrap returns the runner's error, and the error variables that apply.
func (e *Error) Unwrap() []error {
	errs := []error{e.Err}
	if why := e.sentinel(); why != nil {
		errs = append(errs, why)
	}
	if e.Unsure {
		errs = append(errs, ErrUnsure)
	}
	return errs
}

// RetryOutcome makes an error with Unsure permanent for an outer retry loop,
// because the value may have been written and must not be written again.
func (e *Error) RetryOutcome() retry.Outcome {
	if e.Unsure {
		return retry.Outcome{Class: retry.ClassPermanent}
	}
	return e.Err.RetryOutcome()
}
