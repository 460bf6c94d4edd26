package config

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Codes is a set of exit codes or HTTP statuses, as ranges.
type Codes []CodeRange

// CodeRange is the codes from First to Last.
type CodeRange struct{ First, Last int }

// Has reports whether the code is in the set.
func (c Codes) Has(code int) bool {
	for _, r := range c {
		if r.First <= code && code <= r.Last {
			return true
		}
	}
	return false
}

// overlap returns a code that is in both sets.
func (c Codes) overlap(other Codes) (code int, ok bool) {
	for _, a := range c {
		for _, b := range other {
			if code := max(a.First, b.First); code <= min(a.Last, b.Last) {
				return code, true
			}
		}
	}
	return 0, false
}

// String returns the range as it is written: 75 or 100-110.
func (r CodeRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// String returns the codes with commas between them.
func (c Codes) String() string {
	parts := make([]string, len(c))
	for i, r := range c {
		parts[i] = r.String()
	}
	return strings.Join(parts, ",")
}

// MarshalText implements [encoding.TextMarshaler].
func (r CodeRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *CodeRange) UnmarshalText(text []byte) error {
	first, last, ok := strings.Cut(string(text), "-")
	if !ok {
		last = first
	}
	lo, err1 := strconv.ParseUint(first, 10, 31)
	hi, err2 := strconv.ParseUint(last, 10, 31)
	if err1 != nil || err2 != nil || lo > hi {
		return fmt.Errorf("%q is not a code or a range of them, such as 75 or 100-110", text)
	}
	*r = CodeRange{int(lo), int(hi)}
	return nil
}

// codes reads a list of codes, each within the limits.
func (l *loader) codes(at place, what string, least, most int) Codes {
	codes := Codes{} // an empty list is one that nothing is in, and not an absent one
	ok := l.list(at, func(at place) {
		s, ok := l.scalar(at)
		if !ok {
			return
		}
		var r CodeRange
		if err := r.UnmarshalText([]byte(s)); err != nil {
			l.bad(at, "%v", err)
		} else if r.First < least || r.Last > most {
			l.bad(at, "%q: %s is from %d to %d", s, what, least, most)
		} else {
			codes = append(codes, r)
		}
	})
	if ok {
		l.value(at, codes.String())
	}
	return codes
}

// jsonText returns a value as JSON, for what has no shorter form.
func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}
