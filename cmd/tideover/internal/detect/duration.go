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
	rest, sum, above := strings.TrimSpace(text), 0.0, time.Duration(math.MaxInt64)
	if rest == "" {
		return 0, fmt.Errorf("%q is not a duration", text)
	}
	for rest != "" {
		m := partOf.FindStringSubmatch(rest)
		if m == nil {
			return 0, fmt.Errorf("%q is not a duration", text)
		}
		unit := unitOf(strings.ToLower(m[2]))
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
		rest = rest[len(m[0]):]
	}
	return wait(sum)
}

func unitOf(name string) time.Duration {
	switch name {
	case "w", "week", "weeks":
		return 7 * 24 * time.Hour
	case "d", "day", "days":
		return 24 * time.Hour
	case "h", "hr", "hrs", "hour", "hours":
		return time.Hour
	case "m", "min", "mins", "minute", "minutes":
		return time.Minute
	case "s", "sec", "secs", "second", "seconds":
		return time.Second
	case "ms", "millis", "millisecond", "milliseconds":
		return time.Millisecond
	default:
		return 0
	}
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
