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

// maxText is the greatest length of a policy's text in bytes.
const maxText = 1000

// Parse reads a policy from its text form: a family or the name of a preset,
// then keys with values.
//
//	exponential(1s..32s) jitter=20% attempts=4 attempt-timeout=30s
//	http attempts=6 total-timeout=2m
//	fixed(2s) attempts=3
//
// An error quotes the word that Parse can't accept. A policy that Parse returns is valid.
func Parse(text string) (Policy, error) { return ParseWith(text, Preset) }

// ParseWith is [Parse] for a program that has named policies of its own. It calls
// lookup with a first word that is not a family. Parse uses [Preset] as lookup; a
// lookup that should know the presets too calls Preset for names that it does not
// have. A nil lookup means Preset.
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
			return Policy{}, fmt.Errorf("key %q is already set%s", name, where)
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

// checkText rejects a text that is too long or has characters that no policy can
// contain. It runs before other errors quote parts of the text.
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

// notKeyValue returns the error for a word after the first that has no equals sign.
func notKeyValue(w string, lookup func(string) (Policy, bool)) error {
	err := fmt.Errorf("%q is not of the form key=value", w)
	if _, named := lookup(w); named || strings.Contains(w, "(") {
		return fmt.Errorf("%w; a policy has one family or preset, as its first word", err)
	}
	return err
}

// parseHead reads the first word: a family with its delays, or a name that lookup
// knows. seen has the keys that this word sets, which later words must not repeat;
// each value is the end of the error message about a repeated key.
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
		return p, nil, fmt.Errorf("family %q: want fixed(D), linear(D..CAP), exponential(D..CAP) or decorrelated(D..CAP), in lower case%s", name, didYouMean(name, kinds))
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

// badHead returns the error for a policy whose first word is neither a schedule
// with its delays, such as exponential(1s..30s), nor the name of a preset.
func badHead(w string) error {
	if _, err := backoff.ParseKind(w); err == nil {
		return fmt.Errorf("family %q needs its delays, as in %s(1s..30s)", w, w)
	}
	if strings.Contains(w, "=") {
		return fmt.Errorf("%q: a policy starts with a family such as exponential(1s..30s) or a preset: %s", w, presetList())
	}
	return fmt.Errorf("%q is neither a preset (%s) nor a family such as exponential(1s..30s)%s", w, presetList(), didYouMean(w, slices.Concat(presetNames(), kinds)))
}

// kinds are the names of the families.
var kinds = []string{"fixed", "linear", "exponential", "decorrelated"}

// didYouMean returns the end of an error message about an unknown word: the known word that is
// probably meant. It is empty if none is similar.
func didYouMean(word string, known []string) string {
	if near := textfmt.Nearest(word, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// hints maps keys of other tools to ours, for error messages.
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
	if near := didYouMean(name, Keys()); !ok && near != "" {
		return p, fmt.Errorf("key %q is unknown%s", name, near)
	}
	if !ok {
		return p, fmt.Errorf("key %q is unknown; want %s", name, strings.Join(Keys(), ", "))
	}
	if err := k.set(&p, value); err != nil && !strings.HasPrefix(err.Error(), name) {
		return p, fmt.Errorf("%s: %w", name, err)
	} else if err != nil {
		return p, err // the error already begins with the key
	}
	return p, nil
}

// String returns the canonical text form of the policy. For a valid policy, Parse
// returns the same policy from it. The text has a family instead of a preset's name.
func (p Policy) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v(%s", p.Kind, textfmt.PolicyDuration(p.Base))
	if p.Cap != 0 {
		b.WriteString(".." + textfmt.PolicyDuration(p.Cap))
	}
	b.WriteByte(')')
	for _, k := range keys[2:] { // base and cap are part of the family
		if v := k.get(&p); v != "" {
			b.WriteString(" " + k.name + "=" + v)
		}
	}
	return b.String()
}

// MarshalText implements [encoding.TextMarshaler]. It returns an error for an invalid
// policy, because UnmarshalText could not read it.
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

// quote quotes a text for an error, shortened to 80 bytes.
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

// keyOf returns the key of a field. String does not write a field that is zero.
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

// durationKey returns the key of a duration. off is the value that sets it to
// zero; "" means that no value does.
func durationKey(name, off string, field func(*Policy) *time.Duration) key {
	parse := func(s string) (time.Duration, error) { return parsePositive(s, off) }
	return keyOf(name, field, parse, textfmt.PolicyDuration)
}

// baseKey returns the key base. Unlike other durations it may be zero if the family is
// fixed: fixed(0s) retries at once.
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

// ParseDuration reads a duration as the text form of a policy has it: the units
// of [time.ParseDuration], after an optional number of days of 24 hours, as in 90s,
// 1m30s, 8d or 1d12h. It accepts zero, but no sign.
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

// parsePositive reads a duration above zero. off is the value that means zero; "" if
// there is none.
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
