package draw

import (
	"fmt"
	"math"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Short returns a duration in as many digits as a reader wants: 945ms, 8.4s,
// 2m8.4s, 5m, 8d12h.
func Short(d time.Duration) string {
	switch {
	case d == math.MaxInt64:
		return "292y" // the longest duration there is; sums stop here too
	case d >= 365*day:
		return fmt.Sprintf("%.3gy", d.Hours()/24/365)
	case d >= day:
		d = d.Round(time.Hour)
		return trimZero(fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour), "d", "0h")
	}
	s := d.Round(grain(d)).String()
	s = strings.Replace(s, "µ", "u", 1)
	s = trimZero(s, "m", "0s")
	return trimZero(s, "h", "0m")
}

// trimZero cuts off a last part that is nothing.
func trimZero(s, unit, zero string) string {
	if strings.HasSuffix(s, unit+zero) {
		return strings.TrimSuffix(s, zero)
	}
	return s
}

// grain returns what a duration is rounded to: four digits or so are left.
func grain(d time.Duration) time.Duration {
	switch {
	case d >= time.Hour:
		return time.Second
	case d >= time.Minute:
		return 100 * time.Millisecond
	case d >= 10*time.Second:
		return 10 * time.Millisecond
	}
	g := time.Duration(1)
	for d >= 10_000*g {
		g *= 10
	}
	return g
}
