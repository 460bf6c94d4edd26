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
	RateLimit          // can continue later
	ContextFull        // can continue in a new session
	Terminal           // waiting does not help: no credits, a spending cap, not logged in
	Overloaded         // the server is temporarily overloaded
	UserExit           // the user ended it
	Completed
	Crashed
)

var reasonNames = []string{"unknown", "rate-limit", "context-full", "terminal", "overloaded", "user-exit", "completed", "crashed"}

// String returns the name that packs use.
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
	return Unknown, fmt.Errorf("reason %q is unknown: want one of %s", name, strings.Join(reasonNames, ", "))
}

// MarshalText implements [encoding.TextMarshaler].
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *Reason) UnmarshalText(text []byte) (err error) {
	*r, err = ParseReason(string(text))
	return err
}

// Trust is the kind of evidence of a verdict. A higher value is more reliable.
type Trust uint8

// The kinds of evidence, the least reliable first.
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
