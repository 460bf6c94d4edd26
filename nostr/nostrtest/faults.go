package nostrtest

import (
	"slices"
	"time"

	"github.com/tideover/tideover/nostr"
)

// Always is the number of times of a fault that does not end by itself.
const Always = -1

// Faults is what a relay does wrong. The zero value is a good relay. What is
// counted is counted down as it happens: 0 means never, [Always] means until it is
// changed.
type Faults struct {
	// When somebody connects.

	RefuseDial bool          // answers 503
	DialDelay  time.Duration // before the answer to a dial

	// When an event is published. The order is that in which they are looked at.

	Kinds        []int         // only events of these kinds meet the faults below; empty means all
	DropEvent    int           // breaks the link; the event is lost
	Reject       string        // answers OK false with this text, such as "rate-limited: slow down"
	RejectNext   int           // so often; 0 means until changed
	DropBeforeOK int           // keeps the event, then breaks the link in place of an answer
	SwallowOK    int           // keeps the event and never answers
	OKDelay      time.Duration // before the answer; events overtake it

	// When somebody subscribes.

	CloseReq     string // answers CLOSED with this text
	CloseReqNext int    // so often; 0 means until changed
	NoEOSE       bool   // never says that the stored events were all sent

	// At both.

	AuthRequired bool // does nothing for who has not said who it is (NIP-42)

	// When events are delivered.

	Shuffle       uint64 // the seed of an order for stored events; 0 means newest first
	Repeat        int    // how often each is delivered; 0 means once
	TamperContent bool   // the content is another, so that it is not that of the id
	BadSignature  bool   // the signature is not that of the author

	// At any time.

	GarbageEvery int  // after so many messages comes a malformed one; 0 means none
	Mute         bool // links stay open, but nothing is read or written, not even a ping or its answer
}

// times counts down a fault that happens n more times and reports whether it
// happens now.
func times(n *int) bool {
	if *n > 0 {
		*n--
		return true
	}
	return *n < 0
}

// text returns the answer of a fault, empty for none, and ends the fault after the
// last.
func text(s *string, next *int) string {
	answer := *s
	if answer != "" && *next > 0 {
		if *next--; *next == 0 {
			*s = ""
		}
	}
	return answer
}

// of returns the faults that an event meets when it is published.
func (f *Faults) of(e *nostr.Event) *Faults {
	if len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind) {
		return f
	}
	return new(Faults)
}

// spoil returns the event as it is delivered.
func (f *Faults) spoil(e *nostr.Event) *nostr.Event {
	if !f.TamperContent && !f.BadSignature {
		return e
	}
	bad := *e
	if f.TamperContent {
		bad.Content += " (tampered with)"
	}
	if f.BadSignature {
		bad.Sig = otherDigit(bad.Sig)
	}
	return &bad
}

// otherDigit changes the last digit, so that the shape stays that of a signature.
func otherDigit(hex string) string {
	if hex == "" {
		return "0"
	}
	last := len(hex) - 1
	if hex[last] == '0' {
		return hex[:last] + "1"
	}
	return hex[:last] + "0"
}

// garbage returns the i-th malformed message: no JSON, and JSON that is no message.
func garbage(i int) string {
	list := [...]string{
		`{`, `null`, `[]`, `[1]`, `["EVENT"]`, `["EVENT","x",null]`, `["EVENT","x",{"id":1}]`, `["OK"]`,
		`["OK",5,"yes",null]`, `["EOSE",{}]`, `["NEWS","from nowhere"]`, `["NOTICE",[[[[[[]]]]]]]`, ``,
	}
	return list[i%len(list)]
}
