package health

import (
	"time"

	"github.com/tideover/tideover/breaker"
)

// Outcome is the result of a call. The zero Outcome is a success.
type Outcome struct {
	Result breaker.Result

	// Refused marks a failure that concerns the credentials of the call and not the
	// server: status 401, 402, 403 or 429. Another key of the same provider may
	// succeed. Only [Pool] uses it.
	Refused bool

	// Wait is the server's Retry-After; 0 means that it sent none. It is used
	// for failures only.
	Wait time.Duration
}

// Common outcomes.
var (
	Succeeded = Outcome{Result: breaker.Success}
	Failed    = Outcome{Result: breaker.Failure}
	Canceled  = Outcome{Result: breaker.Canceled} // by its own caller: counts neither as success nor as failure of the target
)

// FailedFor returns the outcome of a failed call whose server sent a
// Retry-After of wait.
func FailedFor(wait time.Duration) Outcome { return Outcome{Result: breaker.Failure, Wait: wait} }

// RefusedFor returns the outcome of a call whose key was rejected or throttled; wait is the
// server's Retry-After, 0 if it sent none.
func RefusedFor(wait time.Duration) Outcome {
	return Outcome{Result: breaker.Failure, Refused: true, Wait: wait}
}

// failed reports whether the call failed. As in package breaker, an unknown
// result counts as a failure.
func (o Outcome) failed() bool {
	return o.Result != breaker.Success && o.Result != breaker.Canceled
}
