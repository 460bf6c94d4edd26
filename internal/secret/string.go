package secret

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

// Mask replaces a secret in text.
const Mask = "***"

// String is a secret. The zero String is the empty secret. It can't be compared
// with ==; see [String.Equal].
type String struct {
	// A closure, and not a string or a pointer to one: fmt prints the unexported
	// fields of other structs by reflection, without asking for a Formatter, and
	// dumpers follow pointers. Nothing follows a function.
	reveal func() string
}

// New returns the value as a secret.
func New(value string) String { return String{reveal: func() string { return value }} }

// Reveal returns the value. Call it only where the value is needed.
func (s String) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// IsZero reports whether the secret is empty.
func (s String) IsZero() bool { return s.Reveal() == "" }

// Equal compares the secret with the value that a client presents, in a time that
// depends only on the length.
func (s String) Equal(presented string) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(presented)) == 1
}

// String returns "***".
func (String) String() string { return Mask }

// GoString returns "***".
func (String) GoString() string { return Mask }

// Format implements [fmt.Formatter]: every verb prints "***", with any
// flags and width.
func (String) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(Mask)) }

// MarshalText returns "***", so that a secret never reaches a file. There is no
// UnmarshalText: what was written can't be read back.
func (String) MarshalText() ([]byte, error) { return []byte(Mask), nil }

// MarshalJSON returns "***" as a JSON string.
func (String) MarshalJSON() ([]byte, error) { return []byte(`"` + Mask + `"`), nil }

// MarshalYAML returns "***".
func (String) MarshalYAML() (any, error) { return Mask, nil }

// LogValue implements [slog.LogValuer].
func (String) LogValue() slog.Value { return slog.StringValue(Mask) }
