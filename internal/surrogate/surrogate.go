// Package surrogate finds halves of surrogate pairs in JSON. A JSON string can hold one half of a
// pair, as the escape \ud800, and UTF-8 has no form for it: encoding/json reads U+FFFD instead, so
// that different strings become the same.
package surrogate

import (
	"bytes"
	"strconv"
)

const escapeSize = len(`\u0000`)

// Next returns the index of the first escape of a lone surrogate in the JSON, and the
// surrogate; -1 if there is none. The JSON must be valid.
func Next(json []byte) (at int, unit uint16) {
	for i := 0; ; {
		next := bytes.IndexByte(json[min(i, len(json)):], '\\')
		if next < 0 {
			return -1, 0
		}
		i += next
		first, ok := escaped(json[i:])
		switch {
		case !ok:
			i += 2 // another escape, such as \\
		case !IsHigh(first) && !IsLow(first):
			i += escapeSize
		default:
			second, ok := escaped(json[i+escapeSize:])
			if !IsHigh(first) || !ok || !IsLow(second) {
				return i, first
			}
			i += 2 * escapeSize
		}
	}
}

// escaped returns the unit of UTF-16 that the text begins with, as an escape such as \ud800.
func escaped(text []byte) (unit uint16, ok bool) {
	if len(text) < escapeSize || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:escapeSize]), 16, 16)
	return uint16(n), err == nil
}

// IsHigh reports whether the unit is the first half of a pair.
func IsHigh(unit uint16) bool { return unit >= 0xD800 && unit < 0xDC00 }

// IsLow reports whether the unit is the second half of a pair.
func IsLow(unit uint16) bool { return unit >= 0xDC00 && unit < 0xE000 }
