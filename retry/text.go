package retry

import (
	"fmt"
	"strings"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/textfmt"
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
