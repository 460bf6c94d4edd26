package detect

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
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

// The values of reading.as for a time that is set by the rule and not stated in the output.
const (
	asRule     = "rule"      // by [Rule.For]
	asRuleTime = "rule-time" // by [Rule.At]
)

// reading is the result of parsing a time.
type reading struct {
	until  time.Time // zero on an error
	stated string    // the words that were parsed
	as     string    // the format they were parsed as
	note   string    // why the stated time is not used; "" without an error
}

// isSet reports whether a time was read.
func (r *reading) isSet() bool { return !r.until.IsZero() }

// forms has a parser for each format of a time. A parser gets the text, the time when it was
// printed, and the zone for times without a zone.
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

// read parses a text that was printed at the time at. as is the name of its format in forms. It
// accepts times from tolerance before at to longest after at; otherwise the result has a note with
// the error.
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

// readEpoch parses seconds or milliseconds since 1970. Numbers from 1e11 on are milliseconds: as
// seconds, they would be after the year 5138. It also accepts 2026-04-11T20:30:24Z, which some
// programs write instead.
func readEpoch(text string, at time.Time, zone *time.Location) (time.Time, error) {
	if isoPart.MatchString(text) {
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

// readRetryAfter parses the value of a Retry-After header: seconds, a duration such as 2m, or a date.
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

// durationPart matches a number and its unit. {duration} in a pack is a sequence of them.
const durationPart = `\d+(?:\.\d+)? ?(?:weeks?|w|days?|d|hours?|hrs?|h|milliseconds?|millis|ms|minutes?|mins?|m|seconds?|secs?|s)`

var (
	partOf = lazyregexp.New(`^(?i:(\d+(?:\.\d+)?) ?([a-z]+)(?:, and |, | and | |)?)`)
	number = lazyregexp.New(`^\d+(?:\.\d+)?$`)
)

// readDuration parses durations such as 11.75s, 1m30s, 2 days 17 hours 14 minutes, 1 hour and 5
// minutes. The units must decrease: "20s 35s" is an error, because it is two durations.
func readDuration(text string) (time.Duration, error) {
	sum, above := 0.0, time.Duration(math.MaxInt64)
	for rest := strings.TrimSpace(text); ; {
		m := partOf.FindStringSubmatch(rest)
		if m == nil {
			return 0, fmt.Errorf("%q is not a duration", text)
		}
		unit := units[strings.ToLower(m[2])]
		if unit == 0 {
			return 0, fmt.Errorf("%q has the unknown unit %q", text, m[2])
		}
		if unit >= above {
			return 0, fmt.Errorf("%q is more than one duration", text)
		}
		above = unit
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return 0, fmt.Errorf("%q is too large", text)
		}
		sum += n * float64(unit)
		if rest = rest[len(m[0]):]; rest == "" {
			return wait(sum)
		}
	}
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// units maps the names of units, in lower case, to their lengths.
var units = map[string]time.Duration{
	"w": week, "week": week, "weeks": week, "d": day, "day": day, "days": day,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"ms": time.Millisecond, "millis": time.Millisecond, "millisecond": time.Millisecond, "milliseconds": time.Millisecond,
}

// readNumber parses a number of units.
func readNumber(text string, unit time.Duration) (time.Duration, error) {
	if !number.MatchString(text) {
		return 0, fmt.Errorf("%q is not a number of %s", text, map[time.Duration]string{time.Second: "seconds", time.Millisecond: "milliseconds"}[unit])
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return wait(n * float64(unit))
}

// wait converts nanoseconds to a duration, or returns errTooLong.
func wait(nanoseconds float64) (time.Duration, error) {
	if nanoseconds > float64(longest) {
		return 0, errTooLong
	}
	return time.Duration(math.Round(nanoseconds)), nil
}
