package gateway

import (
	"fmt"
	"log/slog"

	"github.com/tideover/tideover/internal/secret"
)

// Secret is a value that must not be shown: a key, a token, the value of a header. All
// verbs of fmt, all encoders and slog write "***"; only [Secret.Reveal] returns the value.
// The zero Secret is empty. Secrets can't be compared with ==.
type Secret struct{ value secret.String }

// NewSecret returns the text as a secret.
func NewSecret(text string) Secret { return Secret{secret.New(text)} }

// Reveal returns the value.
func (s Secret) Reveal() string { return s.value.Reveal() }

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.value.IsZero() }

// String returns "***".
func (s Secret) String() string { return s.value.String() }

// GoString returns "***".
func (s Secret) GoString() string { return s.value.GoString() }

// Format implements [fmt.Formatter]: every verb prints "***", with any flags and width.
func (s Secret) Format(f fmt.State, verb rune) { s.value.Format(f, verb) }

// MarshalText returns "***". There is no UnmarshalText: the value can't be read back.
func (s Secret) MarshalText() ([]byte, error) { return s.value.MarshalText() }

// MarshalJSON returns "***" as a JSON string.
func (s Secret) MarshalJSON() ([]byte, error) { return s.value.MarshalJSON() }

// MarshalYAML returns "***".
func (s Secret) MarshalYAML() (any, error) { return s.value.MarshalYAML() }

// LogValue implements [slog.LogValuer]: it is "***".
func (s Secret) LogValue() slog.Value { return s.value.LogValue() }
