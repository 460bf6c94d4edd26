package retry

import (
	"fmt"
	"math"
	"strconv"
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
	durationKey("base", "", func(p *Policy) *time.Duration { return &p.Base }),
	durationKey("cap", "none", func(p *Policy) *time.Duration { return &p.Cap }),
	{"factor", setFactor, func(p *Policy) string { return unlessZero(p.Factor, decimal.Format) }},
	{"max-doublings", setDoublings, func(p *Policy) string { return unlessZero(p.MaxDoublings, strconv.Itoa) }},
	{"jitter", setJitter, func(p *Policy) string { return unlessZero(p.Jitter, backoff.Band.String) }},
	{"attempts", setAttempts, func(p *Policy) string { return unlessZero(p.Attempts, formatAttempts) }},
	durationKey("attempt-timeout", "none", func(p *Policy) *time.Duration { return &p.AttemptTimeout }),
	durationKey("total-timeout", "none", func(p *Policy) *time.Duration { return &p.TotalTimeout }),
	durationKey("throttle-base", "none", func(p *Policy) *time.Duration { return &p.ThrottleBase }),
	durationKey("server-wait", "", func(p *Policy) *time.Duration { return &p.ServerWait }),
	durationKey("server-slack", "none", func(p *Policy) *time.Duration { return &p.ServerSlack }),
	durationKey("reset-after", "none", func(p *Policy) *time.Duration { return &p.ResetAfter }),
	{"budget", setBudget, func(p *Policy) string { return unlessZero(p.Budget, limit.BudgetSpec.String) }},
	{"hedge", setHedge, func(p *Policy) string { return unlessZero(p.Hedge, Hedge.String) }},
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
	for _, k := range keys {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

func unlessZero[T comparable](v T, format func(T) string) string {
	if v == *new(T) {
		return ""
	}
	return format(v)
}

// durationKey returns the key of a duration. off is the word that sets it to
// zero, if there is one.
func durationKey(name, off string, field func(*Policy) *time.Duration) key {
	return key{
		name: name,
		set: func(p *Policy, s string) (err error) {
			if name == "base" && p.Kind == backoff.Fixed {
				*field(p), err = ParseDuration(s) // fixed(0s) retries at once
			} else {
				*field(p), err = parsePositive(s, off)
			}
			return err
		},
		get: func(p *Policy) string { return unlessZero(*field(p), textfmt.PolicyDuration) },
	}
}

func setFactor(p *Policy, s string) error {
	f, err := decimal.Parse(s)
	if err != nil || f < 1 || math.IsInf(f, 0) {
		return fmt.Errorf("%q is not a number of 1 or more", s)
	}
	p.Factor = f
	return nil
}

func setDoublings(p *Policy, s string) error {
	if s == "none" {
		p.MaxDoublings = 0
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a whole number above zero; write none for no limit", s)
	}
	p.MaxDoublings = int(n)
	return nil
}

func setJitter(p *Policy, s string) (err error) {
	p.Jitter, err = backoff.ParseBand(s)
	return err
}

func setAttempts(p *Policy, s string) (err error) {
	p.Attempts, err = parseAttempts(s)
	return err
}

func formatAttempts(n int) string {
	if n == Unlimited {
		return "unlimited"
	}
	return strconv.Itoa(n)
}

func setBudget(p *Policy, s string) (err error) {
	p.Budget, err = limit.ParseBudget(s)
	return err
}

func setHedge(p *Policy, s string) (err error) {
	p.Hedge, err = parseHedge(s)
	return err
}
