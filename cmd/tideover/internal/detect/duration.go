package detect

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// durationPart matches a number and its unit. {duration} in a pack is a sequence of them.
const durationPart = `\d+(?:\.\d+)? ?(?:weeks?|w|days?|d|hours?|hrs?|h|milliseconds?|millis|ms|minutes?|mins?|m|seconds?|secs?|s)`

var (
	partOf = lazyregexp.New(`^(?i:(\d+(?:\.\d+)?) ?([a-z]+)(?:, and |, | and | |)?)`)
	number = lazyregexp.New(`^\d+(?:\.\d+)?$`)
)

// readDuration parses durations such as 11.75s, 1m30s, 2 days 17 hours 14 minutes, 1 hour and 5
// minutes. The units must decrease: 20s 35s is two durations.
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

// units has the names of units in lower case.
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
