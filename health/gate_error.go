package health

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrGateClosed is what the error of every caller is, in the sense of
// [errors.Is], that a gate turned away because it cannot open in time. The error
// itself is a [*ClosedError].
var ErrGateClosed = errors.New("gate is closed")

// ClosedError says that a gate will not open before the caller's deadline.
type ClosedError struct {
	Next     time.Duration // how long until the next probe: nobody gets through before it
	Expected time.Duration // how long until recovery, by the estimate's median; 0 without an estimate
	Within   time.Duration // how long the caller could have waited
}

// Error says what to wait for.
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

// ended returns the error of a wait that the context cut short. It matches both
// the context's error and the cause that whoever ended it gave.
func ended(ctx context.Context, wait string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("health: wait for %s: %w", wait, cause)
	}
	return fmt.Errorf("health: wait for %s: %w: %w", wait, err, cause)
}
