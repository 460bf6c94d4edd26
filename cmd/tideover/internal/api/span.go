package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tideover/tideover/retry"
)

// longest is the longest time that anything may be asked for. Longer ones would
// end after the last moment that can be stored.
const longest = 100 * 365 * 24 * time.Hour

// Span is a time that is longer than nothing. In JSON it is a whole number of
// seconds, or a string such as "1m30s" or "2d".
type Span time.Duration

// MarshalJSON writes the span as a string.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).String()) }

// UnmarshalJSON reads either form.
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
		return fmt.Errorf("%s is neither a whole number of seconds nor a duration such as \"1m30s\"", excerpt(data))
	case n <= 0:
		return fmt.Errorf("%d is not positive", n)
	}
	*s = Span(time.Duration(n) * time.Second)
	return nil
}

// ParseSpan reads a duration that is longer than nothing, in the spelling of the
// policies: Go's, and d for days.
func ParseSpan(text string) (time.Duration, error) {
	d, err := retry.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration such as 30s, 1m30s or 2d that is longer than nothing", excerpt(text))
	case d <= 0:
		return 0, fmt.Errorf("%q is not positive", text)
	case d > longest:
		return 0, fmt.Errorf("%q is more than 100 years", text)
	}
	return d, nil
}

// excerpt returns the beginning of what a client sent, for an error.
func excerpt[T ~string | ~[]byte](data T) string {
	if len(data) > 60 {
		return string(data[:60]) + "…"
	}
	return string(data)
}
