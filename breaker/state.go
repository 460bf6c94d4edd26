package breaker

import "fmt"

// State is what a breaker does with calls.
type State uint8

// The states. A new breaker is Closed.
const (
	Closed       State = iota // calls pass and are counted
	HalfOpen                  // a few calls pass, to find out whether they work again
	Open                      // calls are refused for a time
	ForcedOpen                // calls are refused until Reset
	ForcedClosed              // calls pass and are counted, but nothing opens the breaker
)

var stateNames = [...]string{"closed", "half-open", "open", "forced-open", "forced-closed"}

// String returns the state's name, such as "half-open".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// passes reports whether every call is let through in the state.
func (s State) passes() bool { return s == Closed || s == ForcedClosed }

// Result is what became of a call.
type Result uint8

// The results. Any other value counts as Failure.
const (
	Success  Result = iota // the destination did its job, even if the answer was "no"
	Failure                // the destination did not
	Canceled               // the caller gave up: counts nothing, and makes room for another probe
)

var resultNames = [...]string{"success", "failure", "canceled"}

// String returns the result's name, such as "failure".
func (r Result) String() string {
	if int(r) < len(resultNames) {
		return resultNames[r]
	}
	return fmt.Sprintf("result(%d)", uint8(r))
}

// Counts are the results that a breaker looks at: those in the window while it
// is closed, those of the probes while it is half-open, none while it is open.
type Counts struct {
	Calls               int // calls that succeeded or failed
	Failures            int // calls that failed
	Slow                int // calls that were slow, failed ones included
	ConsecutiveFailures int // failures since the last success, even those that have left the window
}
