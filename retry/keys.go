package retry

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/decimal"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/limit"
)

// key is one key of the text form. The table below is the only place that
// knows the keys: Parse, String and Refuse read it.
type key struct {
	name string
	set  func(*Policy, string) error
	get  func(*Policy) string // the canonical value; "" when not set
}

var keys = []key{
	baseKey(),
	durationKey("cap", "none", func(p *Policy) *time.Duration { return &p.Cap }),
	keyOf("factor", func(p *Policy) *float64 { return &p.Factor }, parseFactor, decimal.Format),
	keyOf("max-doublings", func(p *Policy) *int { return &p.MaxDoublings }, parseDoublings, strconv.Itoa),
	keyOf("jitter", func(p *Policy) *backoff.Band { return &p.Jitter }, backoff.ParseBand, backoff.Band.String),
	keyOf("attempts", func(p *Policy) *int { return &p.Attempts }, parseAttempts, formatAttempts),
	durationKey("attempt-timeout", "none", func(p *Policy) *time.Duration { return &p.AttemptTimeout }),
	durationKey("total-timeout", "none", func(p *Policy) *time.Duration { return &p.TotalTimeout }),
	durationKey("throttle-base", "none", func(p *Policy) *time.Duration { return &p.ThrottleBase }),
	durationKey("server-wait", "", func(p *Policy) *time.Duration { return &p.ServerWait }),
	durationKey("server-slack", "none", func(p *Policy) *time.Duration { return &p.ServerSlack }),
	durationKey("reset-after", "none", func(p *Policy) *time.Duration { return &p.ResetAfter }),
	keyOf("budget", func(p *Policy) *limit.BudgetSpec { return &p.Budget }, limit.ParseBudget, limit.BudgetSpec.String),
	keyOf("hedge", func(p *Policy) *Hedge { return &p.Hedge }, parseHedge, Hedge.String),
}

// Keys returns the names of all keys of the text form, in the order in which
// String writes them.
func Keys() []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	return names
}

func keyNamed(name string) (key, bool) {
	i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return keys[i], true
}

// keyOf returns the key of a field. The zero value is not written.
func keyOf[T comparable](name string, field func(*Policy) *T, parse func(string) (T, error), format func(T) string) key {
	return key{
		name: name,
		set: func(p *Policy, s string) (err error) {
			*field(p), err = parse(s)
			return err
		},
		get: func(p *Policy) string {
			if v := *field(p); v != *new(T) {
				return format(v)
			}
			return ""
		},
	}
}

// durationKey returns the key of a duration. off is the word that sets it to
// zero, if there is one.
func durationKey(name, off string, field func(*Policy) *time.Duration) key {
	parse := func(s string) (time.Duration, error) { return parsePositive(s, off) }
	return keyOf(name, field, parse, textfmt.PolicyDuration)
}

// baseKey is a key whose value may be zero for one kind: fixed(0s) retries at once.
func baseKey() key {
	k := durationKey("base", "", func(p *Policy) *time.Duration { return &p.Base })
	positive := k.set
	k.set = func(p *Policy, s string) (err error) {
		if p.Kind != backoff.Fixed {
			return positive(p, s)
		}
		p.Base, err = ParseDuration(s)
		return err
	}
	return k
}

func parseFactor(s string) (float64, error) {
	f, err := decimal.Parse(s)
	if err != nil || f < 1 || math.IsInf(f, 0) {
		return 0, fmt.Errorf("%q is not a number of 1 or more", s)
	}
	return f, nil
}

func parseDoublings(s string) (int, error) {
	if s == "none" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a whole number above zero; write none for no limit", s)
	}
	return int(n), nil
}

func formatAttempts(n int) string {
	if n == Unlimited {
		return "unlimited"
	}
	return strconv.Itoa(n)
}

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
