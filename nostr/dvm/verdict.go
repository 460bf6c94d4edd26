package dvm

// Verdict is the decision about an event.
type Verdict uint8

// The verdicts, roughly in the order of the checks. Only Invalid, Overloaded and
// Underpaid are answered. All other events that are not accepted are dropped
// silently; otherwise any client could make the provider publish.
const (
	WrongKind  Verdict = iota + 1 // a kind that is not served
	OwnKey                        // our own event
	NotOurs                       // addressed to another provider, or to none
	Stale                         // too old
	Future                        // dated too far ahead
	Expired                       // past its expiration
	Seen                          // received before
	Stranger                      // from a customer who is not on the list
	Limited                       // from a customer who sends too many requests
	Full                          // more jobs, or more customers, than can be stored
	Forged                        // the signature is wrong
	Overloaded                    // too many requests, or no capacity; answered
	Invalid                       // not a valid request; answered
	Underpaid                     // bids less than the price; answered
	Silenced                      // one of the three above, but too many were answered recently
	Dropped                       // more arrived than could be checked
	Answered                      // an earlier process has answered it, or the customer has withdrawn it
	Unrecorded                    // Jobs could not record it
	Accepted
	Withdrawn // a customer has cancelled a job
	verdicts
)

var verdictNames = [verdicts]string{
	"", "wrong-kind", "own-key", "not-ours", "stale", "future", "expired", "seen", "stranger", "limited", "full", "forged",
	"overloaded", "invalid", "underpaid", "silenced", "dropped", "answered", "unrecorded", "accepted", "withdrawn",
}

// String returns the verdict's name.
func (v Verdict) String() string {
	if v < verdicts {
		return verdictNames[v]
	}
	return "unknown"
}

// MarshalText implements [encoding.TextMarshaler].
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Stats counts verdicts; those that never occurred are absent.
type Stats map[Verdict]uint64

// tally counts verdicts.
type tally [verdicts]uint64

func (t *tally) stats() Stats {
	s := Stats{}
	for v, n := range t {
		if n > 0 {
			s[Verdict(v)] = n
		}
	}
	return s
}
