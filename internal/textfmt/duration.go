package textfmt

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// CompactDuration returns the duration as Go writes it, without parts that are zero at
// the end: 30m instead of 30m0s.
func CompactDuration(d time.Duration) string {
	return trimZero(trimZero(d.String(), "m", "0s"), "h", "0m")
}

// ASCIIDuration is CompactDuration with us for microseconds.
func ASCIIDuration(d time.Duration) string {
	return strings.Replace(CompactDuration(d), "µ", "u", 1)
}

// PolicyDuration returns the duration in the one spelling that policies have: no zero
// parts, ASCII only, whole days as days.
func PolicyDuration(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return ASCIIDuration(d)
}

// ShortDuration returns the duration with about four digits: 945ms, 8.4s, 2m8.4s, 5m,
// 8d12h.
func ShortDuration(d time.Duration) string {
	switch {
	case d == math.MaxInt64:
		return "292y" // the longest duration there is; sums stop here too
	case d >= 365*day:
		return fmt.Sprintf("%.3gy", d.Hours()/24/365)
	case d >= day:
		d = d.Round(time.Hour)
		return trimZero(fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour), "d", "0h")
	}
	return ASCIIDuration(d.Round(fourDigits(d)))
}

// fourDigits returns the unit to which ShortDuration rounds.
func fourDigits(d time.Duration) time.Duration {
	switch {
	case d >= time.Hour:
		return time.Second
	case d >= time.Minute:
		return 100 * time.Millisecond
	case d >= 10*time.Second:
		return 10 * time.Millisecond
	}
	unit := time.Duration(1)
	for d >= 10_000*unit {
		unit *= 10
	}
	return unit
}

// trimZero removes a last part that is zero.
func trimZero(s, unit, zero string) string {
	if strings.HasSuffix(s, unit+zero) {
		return strings.TrimSuffix(s, zero)
	}
	return s
}

// CoarseDuration returns the duration in one or two units, rounded down: 12ms, 3s,
// 5m20s, 2h, 4d3h.
func CoarseDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + CoarseDuration(-d)
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	case d < time.Hour:
		return twoUnits(d, time.Minute, time.Second, "m", "s")
	case d < day:
		return twoUnits(d, time.Hour, time.Minute, "h", "m")
	default:
		return twoUnits(d, day, time.Hour, "d", "h")
	}
}

func twoUnits(d, large, small time.Duration, largeName, smallName string) string {
	text := fmt.Sprintf("%d%s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, smallName)
	}
	return text
}

// RoundedDuration returns the duration rounded to one or two units: 42m, 3h20m, 2d4h.
// It is empty for less than half a millisecond.
func RoundedDuration(d time.Duration) string {
	unit := time.Hour
	switch {
	case d < time.Second:
		unit = time.Millisecond
	case d < time.Hour:
		unit = time.Second
	case d < day:
		unit = time.Minute
	}
	d = d.Round(unit)
	text := ""
	if d >= day {
		text = strconv.Itoa(int(d/day)) + "d"
	}
	if d %= day; d > 0 {
		text += CompactDuration(d)
	}
	return text
}

// MeasuredDuration returns the duration with about three digits: 450µs, 12ms, 1.25s, 12.3s, 1m30s.
func MeasuredDuration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return RoundedDuration(d)
}

// ElapsedDuration is RoundedDuration with tenths of a second below ten seconds.
func ElapsedDuration(d time.Duration) string {
	if d >= time.Second && d < 10*time.Second {
		return RoundDuration(d).String()
	}
	return RoundedDuration(d)
}

// ReadableDuration returns the duration as Go writes it, rounded to milliseconds below
// a second, to tenths of a second below ten seconds, and to seconds above.
func ReadableDuration(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return RoundDuration(d).String()
}

// RoundDuration rounds to milliseconds below a second, and to tenths of a second above.
func RoundDuration(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
