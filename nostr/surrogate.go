package nostr

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/surrogate"
)

// A JSON string can contain a lone surrogate, half of a surrogate pair, as the
// escape \ud800. UTF-8 has no form for it. JavaScript, whose strings can
// contain it, writes the same escape into the text whose hash is the id. An
// Event therefore stores a lone surrogate as the three bytes that UTF-8 would
// have for it (WTF-8), so that its id can be checked and it can be passed on
// unchanged. All other text of an event is UTF-8.

const surrogateLead = 0xED // the first of the three bytes; the second is 0xA0 or above

// appendSurrogate appends the three bytes of a surrogate.
func appendSurrogate(b []byte, unit uint16) []byte {
	return append(b, surrogateLead, 0x80|byte(unit>>6)&0x3F, 0x80|byte(unit)&0x3F)
}

// surrogateAt returns the surrogate whose three bytes the string begins with.
func surrogateAt(s string) (unit uint16, ok bool) {
	if len(s) < 3 || s[0] != surrogateLead || s[1] < 0xA0 || s[1] > 0xBF || s[2] < 0x80 || s[2] > 0xBF {
		return 0, false
	}
	return 0xD000 | uint16(s[1]&0x3F)<<6 | uint16(s[2]&0x3F), true
}

// exactString is a string that preserves lone surrogates when it is parsed from
// JSON.
type exactString string

// UnmarshalJSON implements [json.Unmarshaler].
func (s *exactString) UnmarshalJSON(data []byte) error {
	data = bytes.Clone(data) // the caller owns it
	var b []byte
	for {
		at, unit := surrogate.Next(data)
		piece := data
		if at >= 0 {
			piece = append(bytes.Clone(data[:at]), '"')
		}
		var text string
		if err := json.Unmarshal(piece, &text); err != nil {
			return err
		}
		b = append(b, text...)
		if at < 0 {
			*s = exactString(b)
			return nil
		}
		b = appendSurrogate(b, unit)
		data = data[at+5:] // including one byte for the quote that starts the next piece
		data[0] = '"'
	}
}

// isText reports whether a string is UTF-8, except for lone surrogates.
func isText(s string) bool {
	if utf8.ValidString(s) {
		return true
	}
	high := false // the previous character was the first half of a pair
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r != utf8.RuneError || size > 1 {
			s, high = s[size:], false
			continue
		}
		unit, ok := surrogateAt(s)
		if !ok || high && surrogate.IsLow(unit) { // two halves in a row are one character
			return false
		}
		s, high = s[3:], surrogate.IsHigh(unit)
	}
	return true
}

// ToValidUTF8 returns a copy of the event with U+FFFD in place of lone
// surrogates; the event itself if it has none. The copy has the original id.
func (e *Event) ToValidUTF8() *Event {
	if e.isValidUTF8() {
		return e
	}
	valid := *e
	valid.Content = strings.ToValidUTF8(e.Content, "\uFFFD")
	valid.Tags = make(Tags, len(e.Tags))
	for i, t := range e.Tags {
		for _, word := range t {
			valid.Tags[i] = append(valid.Tags[i], strings.ToValidUTF8(word, "\uFFFD"))
		}
	}
	return &valid
}

func (e *Event) isValidUTF8() bool {
	return utf8.ValidString(e.Content) && e.Tags.all(utf8.ValidString)
}
