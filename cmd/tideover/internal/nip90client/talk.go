package nip90client

import (
	"time"

	"github.com/tideover/tideover/nostr/dvm"
)

// AfterError is how long a result may follow feedback that says error. Both are
// published at once, but may come over different relays.
const AfterError = 5 * time.Second

// Ending is how the wait for a result ended.
type Ending string

// The ways in which it ends.
const (
	Done        Ending = "done"         // with a result
	Partial     Ending = "partial"      // with a part of one
	Failed      Ending = "error"        // the provider has given up, or says of its result what nobody knows
	Cancelled   Ending = "cancelled"    // the provider stopped because it was told to
	NotAccepted Ending = "not-accepted" // no relay took the request
	NoAnswer    Ending = "no-answer"    // there was no result in time
	Unreadable  Ending = "unreadable"   // every relay refuses to send the answers
	Detached    Ending = "detached"     // nobody wanted to wait
	Interrupted Ending = "interrupted"  // the customer did not want to wait any more
)

// Talk is how far a request has come, from the answers to it. The zero Talk is the
// beginning.
type Talk struct {
	failed *Entry    // feedback that says error
	until  time.Time // when it is taken for the end
}

// Take takes the next answer, and returns how it ends, if it does.
func (t *Talk) Take(x *Entry, now time.Time) (ending Ending, over bool) {
	switch {
	case x.Type == TypeResult && x.Status == dvm.StatusSuccess:
		return Done, true
	case x.Type == TypeResult && x.Status == dvm.StatusPartial:
		return Partial, true
	case x.Type == TypeResult: // an error, or a word that nobody knows
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
