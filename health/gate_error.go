package health

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrGateClosed matches (with [errors.Is]) the error of every caller that a
// gate rejected because it cannot open before the caller's deadline. The error
// itself is a [*ClosedError].
var ErrGateClosed = errors.New("gate is closed")

// ClosedError is the error of a caller whose deadline comes before the gate can
// open.
type ClosedError struct {
	Next     time.Duration // time until the next probe; no call passes before it
	Expected time.Duration // expected time until recovery (median); 0 without WithRecovery
	Within   time.Duration // how long the caller could have waited
}

// Error returns the time until the next probe, the caller's limit and, if it is
// known, the expected recovery.
func (e *ClosedError) Error() string {
	msg := fmt.Sprintf("%v: the next probe is in %v and the caller can wait %v",
		ErrGateClosed, e.Next.Round(time.Millisecond), e.Within.Round(time.Millisecond))
	if e.Expected > 0 {
		msg += fmt.Sprintf(", recovery is expected in %v", e.Expected.Round(time.Millisecond))
	}
	return msg
}

// Unwrap returns [ErrGateClosed].
func (e *ClosedError) Unwrap() error { return ErrGateClosed }

// waitError returns the error of a wait that the end of the context
// interrupted. It matches both the context's error and its cause.
func waitError(ctx context.Context, wait string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("health: wait for %s: %w", wait, cause)
	}
	return fmt.Errorf("health: wait for %s: %w: %w", wait, err, cause)
}
