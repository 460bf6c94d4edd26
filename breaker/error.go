package breaker

import (
	"errors"
	"fmt"
	"time"
)

// ErrOpen is what the error of every refused call is, in the sense of
// [errors.Is]. The error itself is an [*OpenError].
var ErrOpen = errors.New("breaker is open")

// OpenError says that a breaker refused a call, and until when it will.
type OpenError struct {
	Name  string        // the breaker's name, if it has one
	State State         // Open, ForcedOpen, or HalfOpen when all its probes are under way
	For   time.Duration // as [Breaker.OpenFor]: how long calls will still be refused
}

// Error says what to wait for.
func (e *OpenError) Error() string {
	who := title(e.Name)
	switch e.State {
	case ForcedOpen:
		return who + " is forced open until it is reset"
	case HalfOpen:
		return fmt.Sprintf("%s is half-open and waits for its probes, for another %v at most", who, readable(e.For))
	default:
		return fmt.Sprintf("%s is open for another %v", who, readable(e.For))
	}
}

// Unwrap returns [ErrOpen].
func (e *OpenError) Unwrap() error { return ErrOpen }

// title is how errors call a breaker with this name.
func title(name string) string {
	if name == "" {
		return "breaker"
	}
	return fmt.Sprintf("breaker %q", name)
}

// readable rounds a duration for a message, and never to zero.
func readable(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(time.Millisecond)
	default:
		return d
	}
}
