package retry

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/decimal"
)

const day = 24 * time.Hour

// ParseDuration reads a duration as the text form of a policy spells it: the units
// of [time.ParseDuration], and d in front of them for days of 24 hours, as in 90s,
// 1m30s, 8d or 1d12h. A sign is an error; zero is not.
func ParseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration such as 500ms, 30s, 1m30s or 2d", s)
	if s == "" || strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") {
		return 0, bad
	}
	days, rest, found := strings.Cut(s, "d")
	if !found {
		days, rest = "0", s
	}
	n, err := decimal.Parse(days)
	if err != nil {
		return 0, bad
	}
	d := time.Duration(0)
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil || d < 0 {
			return 0, bad
		}
	}
	whole := math.Round(n * float64(day))
	if whole >= math.MaxInt64 || time.Duration(whole) > math.MaxInt64-d {
		return 0, fmt.Errorf("%q is longer than a duration can be", s)
	}
	return time.Duration(whole) + d, nil
}

// parsePositive reads a duration above zero. off is what switches the key off,
// if anything does.
func parsePositive(s, off string) (time.Duration, error) {
	if off != "" && s == off {
		return 0, nil
	}
	d, err := ParseDuration(s)
	if err == nil && d == 0 {
		err = fmt.Errorf("%q: must be above zero", s)
		if off != "" {
			err = fmt.Errorf("%w; write %s to switch it off", err, off)
		}
	}
	return d, err
}

func parseAttempts(s string) (int, error) {
	if s == "unlimited" {
		return Unlimited, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%q is too many; write unlimited for no limit", s)
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number; write unlimited for no limit", s)
	case n == 0:
		return 0, fmt.Errorf("%q: the first try counts, so the least is 1", s)
	}
	return int(n), nil
}
