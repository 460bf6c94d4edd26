package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// longest is the longest duration that a request may contain. The end of a longer one could be a
// time that can't be stored.
const longest = 100 * 365 * 24 * time.Hour

// Span is a positive duration. In JSON it is a whole number of seconds, or a string such as
// "1m30s" or "2d".
type Span time.Duration

// MarshalJSON encodes the span as a string.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).String()) }

// UnmarshalJSON decodes a number of seconds or a string.
func (s *Span) UnmarshalJSON(data []byte) error {
	var text string
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		d, err := ParseSpan(text)
		*s = Span(d)
		return err
	}
	n, err := strconv.ParseInt(string(data), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && n > int64(longest/time.Second):
		return fmt.Errorf("%s seconds are more than 100 years", data)
	case err != nil:
		return fmt.Errorf("%s is neither a whole number of seconds nor a duration such as \"1m30s\"", Excerpt(data))
	case n <= 0:
		return fmt.Errorf("%d is not positive", n)
	}
	*s = Span(time.Duration(n) * time.Second)
	return nil
}

// ParseSpan parses a positive duration in the syntax of retry policies: that of Go, plus d for
// days.
func ParseSpan(text string) (time.Duration, error) {
	d, err := retry.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a positive duration such as 30s, 1m30s or 2d", Excerpt(text))
	case d <= 0:
		return 0, fmt.Errorf("%q is not positive", text)
	case d > longest:
		return 0, fmt.Errorf("%q is more than 100 years", text)
	}
	return d, nil
}

// ParseMoment parses a time such as 2026-11-15T08:00:00Z, or a duration such as 2h. A duration
// counts from now: into the future if sign is 1, into the past if it is -1.
func ParseMoment(text string, sign int) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, CheckMoment(t)
	}
	d, err := ParseSpan(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither a time such as 2026-11-15T08:00:00Z nor a duration such as 2h", Excerpt(text))
	}
	return time.Now().Add(time.Duration(sign) * d), nil
}

// CheckMoment returns an error for a time outside of the years 1970 to 2200, which can't be stored.
func CheckMoment(t time.Time) error {
	if y := t.Year(); y < 1970 || y > 2200 {
		return fmt.Errorf("the year %d is not between 1970 and 2200", y)
	}
	return nil
}

// CheckKey returns an error if a run can't have the key. Keys are passed on in environment
// variables and HTTP headers, so they must be short and without control characters.
func CheckKey(key string) error {
	switch {
	case len(key) > 512:
		return fmt.Errorf("has %d bytes; the limit is 512", len(key))
	case !utf8.ValidString(key):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(key, unicode.IsControl):
		return fmt.Errorf("%q has a control character in it", Excerpt(key))
	}
	return nil
}

// Excerpt shortens a value of a request to 60 bytes, for an error message.
func Excerpt[T ~string | ~[]byte](data T) string {
	return textfmt.TruncateMark(string(data), 60, "…")
}

// Duplicate returns the path of the first name that occurs twice in the same object of a JSON text.
// JSON parsers disagree about the meaning of such a text. The text must be valid JSON.
func Duplicate(data []byte) (path string, twice bool) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	names, twice := findDuplicate(dec)
	return strings.Join(names, "."), twice
}

// findDuplicate reads one value. If a name occurs twice in an object, it stops there and returns
// the path of the name.
func findDuplicate(dec *json.Decoder) (path []string, twice bool) {
	start, _ := dec.Token()
	if start != json.Delim('{') && start != json.Delim('[') {
		return nil, false
	}
	seen := map[string]bool{}
	for dec.More() {
		if start == json.Delim('{') {
			token, _ := dec.Token()
			name, _ := token.(string)
			path = append(path[:0], name)
			if seen[name] {
				return path, true
			}
			seen[name] = true
		}
		if below, twice := findDuplicate(dec); twice {
			return append(path, below...), true
		}
	}
	_, _ = dec.Token() // the closing bracket
	return nil, false
}
