package detect

import (
	"fmt"
	"slices"
	"strings"
)

// Reason is why a command stopped.
type Reason uint8

// The reasons.
const (
	Unknown     Reason = iota
	RateLimit          // it may go on later
	ContextFull        // it may go on in a new session
	Terminal           // no wait helps: no credits, a spend cap, not logged in
	Overloaded         // the server had a bad moment
	UserExit           // somebody ended it
	Completed
	Crashed
)

var reasonNames = []string{"unknown", "rate-limit", "context-full", "terminal", "overloaded", "user-exit", "completed", "crashed"}

// String returns the name as it is written in packs.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// ParseReason is the inverse of [Reason.String].
func ParseReason(name string) (Reason, error) {
	if i := slices.Index(reasonNames, name); i >= 0 {
		return Reason(i), nil
	}
	return Unknown, fmt.Errorf("reason %q is unknown; want one of %s", name, strings.Join(reasonNames, ", "))
}

// MarshalText implements [encoding.TextMarshaler].
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *Reason) UnmarshalText(text []byte) (err error) {
	*r, err = ParseReason(string(text))
	return err
}

// Trust is what a verdict rests on. More is better.
type Trust uint8

// The grounds, the least first.
const (
	ByExit   Trust = iota // the exit code alone
	ByLine                // a match in the last lines
	ByHeader              // a response header in the last lines
	ByEvent               // a line of JSON
)

// String returns the name.
func (t Trust) String() string {
	return [...]string{"exit", "line", "header", "event"}[min(t, ByEvent)]
}

// MarshalText implements [encoding.TextMarshaler].
func (t Trust) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
