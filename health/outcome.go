package health

import (
	"time"

	"github.com/tideover/tideover/breaker"
)

// Outcome is what became of a call. The zero Outcome is a plain success.
type Outcome struct {
	Result breaker.Result

	// Refused says of a failure that it is about the credentials of the call and
	// not about the server: 401, 402, 403, 429. Another key of the same provider
	// may do. Only a [Pool] looks at it.
	Refused bool

	// Wait is how long the server asked to be left alone (Retry-After); 0 means
	// that it did not say. It counts for failures only.
	Wait time.Duration
}

// The outcomes that need no more words.
var (
	Succeeded = Outcome{Result: breaker.Success}
	Failed    = Outcome{Result: breaker.Failure}
	Canceled  = Outcome{Result: breaker.Canceled} // by its own caller: says nothing about the target
)

// FailedFor returns the outcome of a call whose server asked to be left alone
// for so long.
func FailedFor(wait time.Duration) Outcome { return Outcome{Result: breaker.Failure, Wait: wait} }

// RefusedFor returns the outcome of a call whose key was refused, for so long if
// the server said how long.
func RefusedFor(wait time.Duration) Outcome {
	return Outcome{Result: breaker.Failure, Refused: true, Wait: wait}
}

// failed reports whether the call failed. As for a breaker, a result that is none of
// the three counts as a failure.
func (o Outcome) failed() bool {
	return o.Result != breaker.Success && o.Result != breaker.Canceled
}
