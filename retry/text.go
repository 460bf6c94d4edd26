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
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/limit"
)

// maxText bounds the length of a policy's text.
const maxText = 1000

// Parse reads a policy from its text form: a family or the name of a preset,
// then any keys.
//
//	exponential(1s..32s) jitter=20% attempts=4 attempt-timeout=30s
//	http attempts=6 total-timeout=2m
//	fixed(2s) attempts=3
//
// An error quotes the word that is wrong. A policy that Parse returns is valid.
func Parse(text string) (Policy, error) { return ParseWith(text, Preset) }

// ParseWith is [Parse] for a program with named policies of its own: a first word
// that is not a family is passed to lookup. Parse passes it to [Preset]; a lookup
// that should know the presets too calls Preset for the names that it does not have.
// A nil lookup means Preset.
func ParseWith(text string, lookup func(name string) (Policy, bool)) (Policy, error) {
	if lookup == nil {
		lookup = Preset
	}
	p, err := parse(text, lookup)
	if err != nil {
		return Policy{}, fmt.Errorf("policy %s: %w", quote(text), err)
	}
	return p, nil
}

func parse(text string, lookup func(string) (Policy, bool)) (Policy, error) {
	if err := checkText(text); err != nil {
		return Policy{}, err
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return Policy{}, fmt.Errorf("empty; want a family such as exponential(1s..30s) or a preset: %s", presetList())
	}
	p, seen, err := parseHead(words[0], lookup)
	if err != nil {
		return Policy{}, err
	}
	for _, w := range words[1:] {
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			return Policy{}, notKeyValue(w, lookup)
		}
		if where, given := seen[name]; given {
			return Policy{}, fmt.Errorf("key %q is given already%s", name, where)
		}
		seen[name] = ""
		if p, err = p.With(name, value); err != nil {
			return Policy{}, err
		}
	}
	if err := p.Validate(); err != nil {
		return Policy{}, oneline.Error(err)
	}
	return p, nil
}

// checkText refuses what no policy can contain, before it is quoted anywhere.
func checkText(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("%d characters are too long; at most %d", len(text), maxText)
	}
	for w := range strings.FieldsSeq(text) {
		if strings.ContainsFunc(w, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("%q has a character that is not plain ASCII", w)
		}
	}
	return nil
}

// notKeyValue returns the error about a word after the first that has no equals sign.
func notKeyValue(w string, lookup func(string) (Policy, bool)) error {
	err := fmt.Errorf("%q is not of the form key=value", w)
	if _, named := lookup(w); named || strings.Contains(w, "(") {
		return fmt.Errorf("%w; there is one family or preset, and it comes first", err)
	}
	return err
}

// parseHead reads the first word: a family with its delays, or a name that lookup
// knows. seen has the keys that the word has set, which later words must not repeat,
// each with the end of the sentence that says where.
func parseHead(w string, lookup func(string) (Policy, bool)) (p Policy, seen map[string]string, err error) {
	seen = map[string]string{}
	name, args, ok := strings.Cut(w, "(")
	if !ok {
		if p, ok = lookup(w); !ok {
			return p, nil, badHead(w)
		}
		return p, seen, nil
	}
	if p.Kind, err = backoff.ParseKind(name); err != nil {
		return p, nil, fmt.Errorf("family %q: want fixed(D), linear(D..CAP), exponential(D..CAP) or decorrelated(D..CAP), in lower case", name)
	}
	args, rest, closed := strings.Cut(args, ")")
	switch {
	case !closed:
		return p, nil, fmt.Errorf("%q has no closing parenthesis; there are no spaces inside, as in %s(1s..30s)", w, name)
	case rest != "":
		return p, nil, fmt.Errorf("%q follows the parenthesis of %q; words are separated by spaces", rest, w)
	}
	base, limit, capped := strings.Cut(args, "..")
	seen["base"] = ", in " + w
	if p, err = p.With("base", base); err != nil {
		return p, nil, err
	}
	if capped {
		seen["cap"] = ", in " + w
		p, err = p.With("cap", limit)
	}
	return p, seen, err
}

// badHead says what is wrong with a first word that is neither a family with
// its delays nor a preset.
func badHead(w string) error {
	if _, err := backoff.ParseKind(w); err == nil {
		return fmt.Errorf("family %q needs its delays, as in %s(1s..30s)", w, w)
	}
	if strings.Contains(w, "=") {
		return fmt.Errorf("%q: a policy starts with a family such as exponential(1s..30s) or a preset: %s", w, presetList())
	}
	return fmt.Errorf("%q is neither a preset (%s) nor a family such as exponential(1s..30s)", w, presetList())
}

// hints are for words that other tools use.
var hints = map[string]string{
	"retries": "attempts, which counts the first try too", "max-retries": "attempts, which counts the first try too",
	"max-attempts": "attempts", "tries": "attempts", "timeout": "attempt-timeout or total-timeout",
	"delay": "base", "interval": "base", "max-delay": "cap", "max": "cap", "multiplier": "factor",
}

// With returns the policy with one key set from its text, as Parse would set
// it. It does not validate the policy as a whole.
func (p Policy) With(name, value string) (Policy, error) {
	k, ok := keyNamed(name)
	if hint := hints[name]; !ok && hint != "" {
		return p, fmt.Errorf("key %q is unknown; use %s", name, hint)
	}
	if !ok {
		return p, fmt.Errorf("key %q is unknown; want %s", name, strings.Join(Keys(), ", "))
	}
	if err := k.set(&p, value); err != nil && !strings.HasPrefix(err.Error(), name) {
		return p, fmt.Errorf("%s: %w", name, err)
	} else if err != nil {
		return p, err // says so itself
	}
	return p, nil
}

// String returns the one canonical spelling of the policy. Parse returns the
// same policy from it, if it is valid. A preset is spelled out.
func (p Policy) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v(%s", p.Kind, textfmt.PolicyDuration(p.Base))
	if p.Cap != 0 {
		b.WriteString(".." + textfmt.PolicyDuration(p.Cap))
	}
	b.WriteByte(')')
	for _, k := range keys[2:] { // base and cap stand in the family
		if v := k.get(&p); v != "" {
			b.WriteString(" " + k.name + "=" + v)
		}
	}
	return b.String()
}

// MarshalText implements [encoding.TextMarshaler]. An invalid policy is an
// error: it could not be read back.
func (p Policy) MarshalText() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("policy %q: %w", p.String(), oneline.Error(err))
	}
	return []byte(p.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler], and with it
// [flag.TextVar].
func (p *Policy) UnmarshalText(text []byte) error {
	q, err := Parse(string(text))
	if err != nil {
		return err
	}
	*p = q
	return nil
}

// quote quotes a text for an error, shortened to what a reader can use.
func quote(text string) string {
	const most = 80
	if len(text) > most {
		return fmt.Sprintf("%q…", text[:most])
	}
	return fmt.Sprintf("%q", text)
}

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
