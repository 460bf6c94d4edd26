package dvm

import "maps"

// Verdict says what becomes of an event.
type Verdict uint8

// The verdicts, in the order in which they are found. Only Invalid, Overloaded
// and Underpaid are answered; everything else that is not accepted is dropped without a word, or
// anybody could have the provider talk.
const (
	WrongKind  Verdict = iota + 1 // a kind that is not served
	OwnKey                        // our own event
	NotOurs                       // addressed to somebody else, or to nobody
	Stale                         // too old
	Future                        // dated too far ahead
	Expired                       // nobody wants it any more
	Seen                          // had before
	Stranger                      // from a customer who is not on the list
	Limited                       // from a customer who asks too often
	Full                          // more jobs, or more customers, than can be remembered
	Forged                        // the signature is wrong
	Overloaded                    // asks too often, or there is no room; to be told so
	Invalid                       // a request that can't be understood; to be told so
	Underpaid                     // bids less than the price; to be told so
	Silenced                      // one of the three above, but too many were told so lately
	Dropped                       // more came than could be checked
	Answered                      // an earlier process has answered it, or the customer has withdrawn it
	Unrecorded                    // what does the jobs could not take it
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

// Stats says how often each verdict was found. Those that never were are not there.
type Stats map[Verdict]uint64

func (s Stats) plus(other Stats) Stats {
	sum := maps.Clone(s)
	for v, n := range other {
		sum[v] += n
	}
	return sum
}

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
