package breaker

import (
	"errors"
	"fmt"
	"time"
)

// ErrOpen matches, with [errors.Is], the error of every rejected call. The
// error itself is an [*OpenError].
var ErrOpen = errors.New("breaker is open")

// OpenError is the error of a call that a breaker rejected.
type OpenError struct {
	Name  string        // the breaker's name, if it has one
	State State         // Open, ForcedOpen, or HalfOpen when all its probes are in flight
	For   time.Duration // how long calls will still be rejected, as [Breaker.OpenFor]
}

// Error returns the breaker's name and state, and how long it will reject
// calls.
func (e *OpenError) Error() string {
	who := describe(e.Name)
	switch e.State {
	case ForcedOpen:
		return who + " is forced open until it is reset"
	case HalfOpen:
		return fmt.Sprintf("%s is half-open and waits for its probes, for another %v at most", who, roundForMessage(e.For))
	default:
		return fmt.Sprintf("%s is open for another %v", who, roundForMessage(e.For))
	}
}

// Unwrap returns [ErrOpen].
func (e *OpenError) Unwrap() error { return ErrOpen }

// describe returns the breaker's name for messages.
func describe(name string) string {
	if name == "" {
		return "breaker"
	}
	return fmt.Sprintf("breaker %q", name)
}

// roundForMessage rounds a duration for a message, never to zero.
func roundForMessage(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(time.Millisecond)
	default:
		return d
	}
}
