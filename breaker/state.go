package breaker

import "github.com/tideover/tideover/internal/enum"

// State says how a breaker treats calls.
type State uint8

// The states. A new breaker is Closed.
const (
	Closed       State = iota // calls pass and are counted
	HalfOpen                  // a few calls pass, to find out whether the destination works again
	Open                      // calls are rejected for a time
	ForcedOpen                // calls are rejected until Reset
	ForcedClosed              // calls pass and are counted, but no rule opens the breaker
)

var stateNames = [...]string{"closed", "half-open", "open", "forced-open", "forced-closed"}

// String returns the state's name, such as "half-open".
func (s State) String() string { return enum.Name(stateNames[:], s, "state") }

// allowsAll reports whether every call passes in the state.
func (s State) allowsAll() bool { return s == Closed || s == ForcedClosed }

// Result is the result of a call.
type Result uint8

// The results. Any other value counts as Failure.
const (
	Success  Result = iota // the destination worked, even if its answer was negative
	Failure                // the destination did not work
	Canceled               // the caller gave up: does not count, and frees the place of a probe
)

var resultNames = [...]string{"success", "failure", "canceled"}

// String returns the result's name, such as "failure".
func (r Result) String() string { return enum.Name(resultNames[:], r, "result") }

// Counts are the results that count in a state: those in the window while the
// breaker is closed, those of the probes while it is half-open, none while it
// is open.
type Counts struct {
	Calls               int // calls that succeeded or failed
	Failures            int // calls that failed
	Slow                int // calls that were slow, failed ones included
	ConsecutiveFailures int // failures since the last success, including those that have left the window
}
