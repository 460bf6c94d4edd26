package retry

import "fmt"

// Reason says why a runner stopped. It is an error, so that
// errors.Is(err, retry.StopBudget) tells one from another.
type Reason uint8

// The reasons. Zero is none.
const (
	StopAttempts     Reason = iota + 1 // the policy's attempts are used up
	StopTotalTimeout                   // the next attempt would start after the total timeout
	StopDeadline                       // the next attempt would start after the context's deadline
	StopPermanent                      // the failure is permanent, or must not be repeated
	StopBudget                         // the retry budget is empty
	StopBreaker                        // the breaker is open
	StopLimit                          // the concurrency or rate limit refused the attempt
	StopServerWait                     // the server asked for a longer wait than the policy grants
	StopCanceled                       // the caller canceled
	StopStuck                          // an attempt did not end when its context did
	StopLost                           // the process ended in the attempt too often
	StopTimeout                        // the run's own time is over
	StopWindows                        // the number of limits that were waited for is used up
)

var reasonNames = [...]string{
	"", "attempts", "total-timeout", "deadline", "permanent", "budget",
	"breaker-open", "limit", "server-wait", "canceled", "stuck",
	"lost", "timeout", "windows",
}

var reasonTexts = [...]string{
	"",
	"attempts used up",
	"total timeout too close for another attempt",
	"deadline too close for another attempt",
	"permanent failure",
	"retry budget empty",
	"breaker open",
	"limit reached",
	"server asks for too long a wait",
	"canceled",
	"attempt did not end when told to",
	"process ended in the attempt too often",
	"time is over",
	"told to come back later too often",
}

// String returns the reason's name, as it stands in events.
func (r Reason) String() string { return name(reasonNames[:], r) }

// Error returns the reason in words.
func (r Reason) Error() string { return name(reasonTexts[:], r) }

// ParseReason returns the reason that has the name; see [Reason.String].
func ParseReason(name string) (r Reason, ok bool) {
	r, ok = valueOf[Reason](reasonNames[:], name)
	return r, ok && r != 0
}

// name returns the n-th name, or the number when there is none.
func name[T ~uint8](names []string, n T) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%T(%d)", n, uint8(n))
}

// valueOf returns the number that has the name.
func valueOf[T ~uint8](names []string, s string) (T, bool) {
	for i, n := range names {
		if n == s {
			return T(i), true
		}
	}
	return 0, false
}
