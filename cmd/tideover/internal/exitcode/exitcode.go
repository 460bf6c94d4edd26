// Package exitcode has sets of exit codes, written as 1,5-9. The configuration uses
// them for HTTP status codes, too.
package exitcode

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Max is the largest exit code of a process.
const Max = 255

// TempFail is EX_TEMPFAIL of sysexits.h: the command asks for a longer wait.
const TempFail = 75

// Set is a set of codes, as ranges. Callers can use nil for a default, as distinct from an
// empty Set, which has no codes.
type Set []Range

// Range has the codes from First to Last, both included.
type Range struct{ First, Last int }

// Has reports whether the code is in the set.
func (s Set) Has(code int) bool {
	return slices.ContainsFunc(s, func(r Range) bool { return r.First <= code && code <= r.Last })
}

// Overlap returns a code that is in both sets; ok is false if there is none.
func (s Set) Overlap(other Set) (code int, ok bool) {
	for _, a := range s {
		for _, b := range other {
			if code := max(a.First, b.First); code <= min(a.Last, b.Last) {
				return code, true
			}
		}
	}
	return 0, false
}

// String returns the ranges with commas between them.
func (s Set) String() string {
	parts := make([]string, len(s))
	for i, r := range s {
		parts[i] = r.String()
	}
	return strings.Join(parts, ",")
}

// ParseRange parses a code or a range of codes: 75, 100-110.
func ParseRange(text string) (Range, error) {
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		last = first
	}
	lo, err1 := strconv.ParseUint(first, 10, 31)
	hi, err2 := strconv.ParseUint(last, 10, 31)
	if err1 != nil || err2 != nil || lo > hi {
		return Range{}, fmt.Errorf("%q is not a code or a range of them, such as 75 or 100-110", text)
	}
	return Range{int(lo), int(hi)}, nil
}

// String returns the range in the form that [ParseRange] parses.
func (r Range) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// MarshalText implements [encoding.TextMarshaler].
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *Range) UnmarshalText(text []byte) (err error) {
	parsed, err := ParseRange(string(text))
	if err == nil {
		*r = parsed
	}
	return err
}

// Flag is a command-line flag with a set of exit codes: "1,5-9", or "none" for the
// empty set. The zero Flag is not set.
type Flag struct {
	text  string
	codes Set
	given bool
}

// String returns the flag as it was given.
func (f *Flag) String() string { return f.text }

// Type returns the name of the value in the help text. Package pflag requires it.
func (*Flag) Type() string { return "codes" }

// Set adds the codes in text to the flag; "none" adds no code. If it returns an error,
// the flag is unchanged.
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

// Add adds a code, as if the user had given it.
func (f *Flag) Add(code uint8) {
	f.codes, f.given = append(f.codes, Range{int(code), int(code)}), true
}

// Given reports whether the flag was set, also if it was set to "none".
func (f *Flag) Given() bool { return f.given }

// Has reports whether the flag contains the code.
func (f *Flag) Has(code int) bool { return f.codes.Has(code) }
