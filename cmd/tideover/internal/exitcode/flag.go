package exitcode

import (
	"fmt"
	"strings"
)

// Flag is a command-line flag with a set of exit codes: "1,5-9", or "none" for the
// empty set. The zero Flag is not set.
type Flag struct {
	text  string
	codes Set
	given bool
}

// String returns the flag as it was given.
func (f *Flag) String() string { return f.text }

// Type returns the name of the value in the help.
func (*Flag) Type() string { return "codes" }

// Set adds the codes of the text. If it returns an error, the flag is unchanged.
func (f *Flag) Set(text string) error {
	if text == "none" {
		f.text, f.given = text, true
		return nil
	}
	codes := f.codes
	for part := range strings.SplitSeq(text, ",") {
		r, err := ParseRange(strings.TrimSpace(part))
		if err != nil || r.Last > Max {
			return fmt.Errorf("%q is not an exit code from 0 to %d or a range of them, such as 1,5-9", part, Max)
		}
		codes = append(codes, r)
	}
	f.text, f.codes, f.given = strings.TrimPrefix(f.text+","+text, ","), codes, true
	return nil
}

// Add adds a code as if it had been given.
func (f *Flag) Add(code uint8) {
	f.codes, f.given = append(f.codes, Range{int(code), int(code)}), true
}

// Given reports whether the flag was set, be it to nothing.
func (f *Flag) Given() bool { return f.given }

// Has reports whether the code is one of those given.
func (f *Flag) Has(code int) bool { return f.codes.Has(code) }
