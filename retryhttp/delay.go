package retryhttp

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/httpheader"
)

// ServerDelay returns how long the server asks to wait, from the headers of its
// answer; now is when the answer arrived. The first valid one of these counts:
//
//   - Retry-After-Ms, X-Ms-Retry-After-Ms, Retry-After
//   - the latest reset of a rate limit that has nothing remaining, in the
//     headers of the IETF draft, GitHub, OpenAI and Anthropic
//
// A value is a number of seconds (or milliseconds, where the name says so), a
// duration such as 6m0s, a date in one of the three forms of HTTP or RFC 3339,
// or a Unix time: numbers from 1e9 on are Unix seconds, and from 1e12 on Unix
// milliseconds. A point in time is compared with the answer's own Date, if there is
// one, so that the clocks need not agree; a time in the past is a delay of 0. A
// negative or malformed value is ignored. A value that is too long for a
// [time.Duration] becomes the longest one.
func ServerDelay(h http.Header, now time.Time) (time.Duration, bool) {
	if d, ok := retryAfter(h, now); ok {
		return d, true
	}
	return resetDelay(h, now)
}

// retryAfter reads the headers that state a delay.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	for _, header := range [...]struct {
		name string
		unit time.Duration
	}{
		{"Retry-After-Ms", time.Millisecond},
		{"X-Ms-Retry-After-Ms", time.Millisecond},
		{"Retry-After", time.Second},
	} {
		if v := h.Get(header.name); v != "" {
			if d, ok := parseDelay(v, header.unit, serverNow(h, now)); ok {
				return d, true
			}
		}
	}
	return 0, false
}

// resetDelay reads the headers of rate limits that are used up. The latest reset
// counts, because a request needs room in all limits.
func resetDelay(h http.Header, now time.Time) (latest time.Duration, ok bool) {
	for _, l := range httpheader.RateLimits {
		if strings.TrimSpace(httpheader.First(h, l.Remaining)) != "0" {
			continue
		}
		if d, stated := parseDelay(httpheader.First(h, l.Reset), time.Second, serverNow(h, now)); stated {
			latest, ok = max(latest, d), true
		}
	}
	return latest, ok
}

// serverNow returns the current time by the server's clock: its Date header, or now.
func serverNow(h http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return now
}

// parseDelay reads one value. unit is the unit of a number without one.
func parseDelay(v string, unit time.Duration, now time.Time) (time.Duration, bool) {
	v = strings.TrimSpace(v)
	if n, ok := parseNumber(v); ok {
		return fromNumber(n*unit.Seconds(), now), true
	}
	if d, err := time.ParseDuration(v); err == nil {
		return max(d, 0), d >= 0
	}
	t, err := http.ParseTime(v)
	if err != nil {
		t, err = time.Parse(time.RFC3339, v)
	}
	if err != nil {
		return 0, false
	}
	return max(t.Sub(now), 0), true // Sub returns the longest duration if the true one does not fit
}

// parseNumber reads digits with at most one decimal point. Signs, exponents
// and NaN are not valid in a delay.
func parseNumber(v string) (float64, bool) {
	if v == "" || strings.Trim(v, "0123456789.") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(v, 64)
	if math.IsInf(n, 1) {
		return math.MaxFloat64, true // too large for a float64, but a number
	}
	return n, err == nil
}

// fromNumber distinguishes a delay in seconds from a Unix time in seconds or
// milliseconds by size: as a delay, a Unix time would be longer than 31 years.
func fromNumber(sec float64, now time.Time) time.Duration {
	switch {
	case sec >= 1e12:
		sec = sec/1e3 - unixSeconds(now)
	case sec >= 1e9:
		sec -= unixSeconds(now)
	}
	if sec >= math.MaxInt64/1e9 {
		return math.MaxInt64
	}
	return time.Duration(math.Round(max(sec, 0) * 1e9))
}

func unixSeconds(t time.Time) float64 { return float64(t.Unix()) + float64(t.Nanosecond())/1e9 }
