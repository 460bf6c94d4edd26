package nip90client

import (
	"time"

	"github.com/tideover/tideover/nostr/dvm"
)

// AfterError is how long to wait for a result after feedback with the status error. Both are
// published at once, but may arrive over different relays.
const AfterError = 5 * time.Second

// Ending is how the wait for a result ended.
type Ending string

// The endings.
const (
	Done        Ending = "done"         // the result arrived
	Partial     Ending = "partial"      // a partial result arrived
	Failed      Ending = "error"        // the provider gave up, or its result has an unknown status
	Cancelled   Ending = "cancelled"    // the provider stopped after a cancellation
	NotAccepted Ending = "not-accepted" // no relay accepted the request
	NoAnswer    Ending = "no-answer"    // no result arrived in time
	Unreadable  Ending = "unreadable"   // every relay rejects the subscription
	Detached    Ending = "detached"     // the customer does not wait for a result
	Interrupted Ending = "interrupted"  // the customer stopped waiting
)

// Talk follows the answers to a request. The zero Talk has seen no answer.
type Talk struct {
	failed *Entry    // feedback that says error
	until  time.Time // when it is taken for the end
}

// Take processes the next answer. If the answer ends the request, over is true.
func (t *Talk) Take(x *Entry, now time.Time) (ending Ending, over bool) {
	switch {
	case x.Type == TypeResult && x.Status == dvm.StatusSuccess:
		return Done, true
	case x.Type == TypeResult && x.Status == dvm.StatusPartial:
		return Partial, true
	case x.Type == TypeResult: // an error, or an unknown status
		return Failed, true
	case x.Cancelled():
		return Cancelled, true
	case x.Status == dvm.StatusError && t.failed == nil:
		t.failed, t.until = x, now.Add(AfterError)
	}
	return "", false
}

// Failed returns the feedback that says error, and when it is to be taken for the
// end; nil if there was none.
func (t *Talk) Failed() (x *Entry, until time.Time) { return t.failed, t.until }
