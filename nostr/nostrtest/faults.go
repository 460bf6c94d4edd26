package nostrtest

import (
	"slices"
	"time"

	"github.com/tideover/tideover/nostr"
)

// Always, as the number of times that a fault occurs, means until the fault is
// changed.
const Always = -1

// Faults says what a relay does wrong. The zero value is a correct relay.
// Counts go down with each occurrence: 0 means never, [Always] means until it
// is changed.
type Faults struct {
	// When a client connects.

	RefuseDial bool          // answers 503
	DialDelay  time.Duration // before the answer to a dial

	// When an event is published. They are checked in this order.

	Kinds        []int         // the faults below affect only events of these kinds; empty means all
	DropEvent    int           // breaks the link; the event is lost
	Reject       string        // answers OK false with this text, such as "rate-limited: slow down"
	RejectNext   int           // this many times; 0 means until changed
	DropBeforeOK int           // stores the event, then breaks the link instead of answering
	SwallowOK    int           // stores the event and never answers
	OKDelay      time.Duration // before the answer; other messages overtake it

	// When a client subscribes.

	CloseReq     string // answers CLOSED with this text
	CloseReqNext int    // this many times; 0 means until changed
	NoEOSE       bool   // never sends EOSE

	// When a client publishes or subscribes.

	AuthRequired bool // serves only authenticated clients (NIP-42)

	// When events are delivered.

	Shuffle       uint64 // seed of a random order for stored events; 0 means newest first
	Repeat        int    // how often each is delivered; 0 means once
	TamperContent bool   // the content is changed, so that it does not match the id
	BadSignature  bool   // the signature is wrong

	// At any time.

	GarbageEvery int  // after this many messages a malformed one is sent; 0 means never
	Mute         bool // links stay open, but nothing is read or written, not even pings and pongs
}

// times counts down a fault that occurs n more times, and reports whether it
// occurs now.
func times(n *int) bool {
	if *n > 0 {
		*n--
		return true
	}
	return *n < 0
}

// text returns the text *s with which a fault answers, empty if there is no fault. It
// counts down *next, and ends the fault after its last occurrence.
func text(s *string, next *int) string {
	answer := *s
	if answer != "" && *next > 0 {
		if *next--; *next == 0 {
			*s = ""
		}
	}
	return answer
}

// forEvent returns the faults that affect an event when it is published.
func (f *Faults) forEvent(e *nostr.Event) *Faults {
	if len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind) {
		return f
	}
	return new(Faults)
}

// spoil returns the event as it is delivered: unchanged, or a copy with the faults
// TamperContent and BadSignature.
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

// otherDigit changes the last digit, so that the text still has the form of a
// signature.
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

// garbage returns the i-th malformed message: invalid JSON, or JSON that is not
// a message.
func garbage(i int) string {
	list := [...]string{
		`{`, `null`, `[]`, `[1]`, `["EVENT"]`, `["EVENT","x",null]`, `["EVENT","x",{"id":1}]`, `["OK"]`,
		`["OK",5,"yes",null]`, `["EOSE",{}]`, `["NEWS","from nowhere"]`, `["NOTICE",[[[[[[]]]]]]]`, ``,
	}
	return list[i%len(list)]
}
