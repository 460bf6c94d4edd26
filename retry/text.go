package retry

import (
	"fmt"
	"strings"

	"github.com/tideover/tideover/backoff"
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
func Parse(text string) (Policy, error) {
	p, err := parse(text)
	if err != nil {
		return Policy{}, fmt.Errorf("policy %s: %w", quote(text), err)
	}
	return p, nil
}

func parse(text string) (Policy, error) {
	if err := checkText(text); err != nil {
		return Policy{}, err
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return Policy{}, fmt.Errorf("empty; want a family such as exponential(1s..30s) or a preset: %s", presetList())
	}
	p, seen, err := parseHead(words[0])
	if err != nil {
		return Policy{}, err
	}
	for _, w := range words[1:] {
		name, value, ok := strings.Cut(w, "=")
		if !ok {
			return Policy{}, fmt.Errorf("%q is not of the form key=value", w)
		}
		if seen[name] {
			return Policy{}, fmt.Errorf("key %q is given twice", name)
		}
		seen[name] = true
		if p, err = p.With(name, value); err != nil {
			return Policy{}, err
		}
	}
	if err := p.Validate(); err != nil {
		return Policy{}, fmt.Errorf("%s", oneLine(err))
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

// parseHead reads the first word: a family with its delays, or a preset. seen
// has the keys that the word has set and a later one may not repeat.
func parseHead(w string) (p Policy, seen map[string]bool, err error) {
	seen = map[string]bool{}
	name, args, ok := strings.Cut(w, "(")
	if !ok {
		p, ok = Preset(w)
		if !ok {
			return p, nil, fmt.Errorf("%q is neither a preset (%s) nor a family such as exponential(1s..30s)", w, presetList())
		}
		return p, seen, nil
	}
	if p.Kind, err = backoff.ParseKind(name); err != nil {
		return p, nil, fmt.Errorf("family %q: want fixed(D), linear(D..CAP), exponential(D..CAP) or decorrelated(D..CAP)", name)
	}
	args, ok = strings.CutSuffix(args, ")")
	if !ok {
		return p, nil, fmt.Errorf("%q has no closing parenthesis", w)
	}
	base, limit, capped := strings.Cut(args, "..")
	seen["base"] = true
	if p, err = p.With("base", base); err != nil {
		return p, nil, err
	}
	if capped {
		seen["cap"] = true
		p, err = p.With("cap", limit)
	}
	return p, seen, err
}

// With returns the policy with one key set from its text, as Parse would set
// it. It does not validate the policy as a whole.
func (p Policy) With(name, value string) (Policy, error) {
	k, ok := keyNamed(name)
	if !ok {
		return p, fmt.Errorf("key %q is unknown; want %s", name, strings.Join(Keys(), ", "))
	}
	if err := k.set(&p, value); err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// String returns the one canonical spelling of the policy. Parse returns the
// same policy from it, if it is valid. A preset is spelled out.
func (p Policy) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v(%s", p.Kind, formatDuration(p.Base))
	if p.Cap != 0 {
		b.WriteString(".." + formatDuration(p.Cap))
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
		return nil, fmt.Errorf("policy %q: %s", p.String(), oneLine(err))
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
