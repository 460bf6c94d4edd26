package detect

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

const (
	longest   = 366 * 24 * time.Hour // a longer wait counts as a mistake
	tolerance = 2 * time.Minute      // a moment this recent counts as now
)

var (
	errTooLong = errors.New("more than 366 days away")
	errPast    = errors.New("in the past")
)

// The formats of a time that the rule sets, not the output.
const (
	asRule     = "rule"      // by [Rule.For]
	asRuleTime = "rule-time" // by [Rule.At]
)

// reading is the result of parsing a time.
type reading struct {
	until  time.Time // zero on an error
	stated string    // the words that were parsed
	as     string    // the format they were parsed as
	note   string    // the error
}

// forms has a parser for each format of a time. It gets the time and the zone in which the text was
// written.
var forms = map[string]func(text string, at time.Time, zone *time.Location) (time.Time, error){
	"duration":     fromNow(readDuration),
	"seconds":      fromNow(func(text string) (time.Duration, error) { return readNumber(text, time.Second) }),
	"milliseconds": fromNow(func(text string) (time.Duration, error) { return readNumber(text, time.Millisecond) }),
	"epoch":        readEpoch,
	"moment":       readMoment,
	"date":         readDate,
	"retry-after":  readRetryAfter,
}

// formNames returns the names of the formats, for errors.
func formNames() string { return strings.Join(slices.Sorted(maps.Keys(forms)), ", ") }

// read parses a text. The result is a moment between tolerance before the time of writing and
// longest after it, or has a note with the error.
func read(text, as string, at time.Time, zone *time.Location) reading {
	r := reading{stated: textfmt.TruncateWithin(strings.TrimSpace(text), 100, "..."), as: as}
	until, err := forms[as](r.stated, at, zone)
	switch {
	case err != nil:
	case until.Before(at.Add(-tolerance)):
		err = errPast
	case until.After(at.Add(longest)):
		err = errTooLong
	default:
		r.until = until
		return r
	}
	r.note = fmt.Sprintf("stated time %q is not used: %v", r.stated, err)
	return r
}

func fromNow(parse func(string) (time.Duration, error)) func(string, time.Time, *time.Location) (time.Time, error) {
	return func(text string, at time.Time, _ *time.Location) (time.Time, error) {
		d, err := parse(text)
		return at.Add(d), err
	}
}

// readEpoch parses seconds or milliseconds since 1970, told apart by their size: as seconds, the
// smallest number of milliseconds would be in the year 5138. It also accepts 2026-04-11T20:30:24Z,
// which some programs write instead.
func readEpoch(text string, at time.Time, zone *time.Location) (time.Time, error) {
	if isoMoment.MatchString(text) {
		return readMoment(text, at, zone)
	}
	if !number.MatchString(text) {
		return time.Time{}, fmt.Errorf("%q is not a number of seconds since 1970", text)
	}
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || n > 1e15:
		return time.Time{}, errTooLong
	case n >= 1e11:
		return time.UnixMilli(int64(n)), nil
	default:
		return time.Unix(int64(n), 0), nil
	}
}

// readRetryAfter parses the value of the header: seconds or a date.
func readRetryAfter(text string, at time.Time, _ *time.Location) (time.Time, error) {
	if number.MatchString(text) {
		d, err := readNumber(text, time.Second)
		return at.Add(d), err
	}
	if d, err := readDuration(text); err == nil {
		return at.Add(d), nil
	}
	t, err := http.ParseTime(text)
	if err != nil {
		return t, fmt.Errorf("%q is neither a number of seconds nor a date", text)
	}
	return t, nil
}
