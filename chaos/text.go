package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tideover/tideover/internal/oneline"
)

// MaxText is the greatest length of the text of a spec, in bytes.
const MaxText = 64 << 10

// maxRules is the greatest number of rules of a spec.
const maxRules = 200

// Parse reads a spec from its text form: rules that are separated by semicolons or line
// ends, after an optional seed=N.
//
//	503,503,200
//	/v1/messages: 429(retry-after=2)x2,200; *: fail=20% delay=50ms..200ms
//	seed=7; POST /v1: reset=1% concurrent=4 over=429(retry-after=due) down 30s every 5m
//
// An error quotes the word that Parse can't accept. A spec that Parse returns is valid.
func Parse(text string) (s Spec, err error) {
	if len(text) > MaxText {
		return s, fmt.Errorf("chaos: the spec has %d bytes; at most %d are read", len(text), MaxText)
	}
	clauses, err := split(text, at(";\n"))
	if err != nil {
		return Spec{}, fmt.Errorf("chaos: %w", err)
	}
	seeded := false
	for _, clause := range clauses {
		clause = strings.TrimSpace(clause)
		digits, isSeed := strings.CutPrefix(clause, "seed=")
		switch {
		case clause == "":
			continue
		case isSeed && (seeded || len(s.Rules) > 0):
			return Spec{}, fmt.Errorf("chaos: %q: a spec can have only one seed, and it must come before the rules", clause)
		case isSeed:
			seeded = true
			if s.Seed, err = strconv.ParseUint(digits, 10, 64); err != nil {
				return Spec{}, fmt.Errorf("chaos: seed: %q is not a whole number such as 7", digits)
			}
			continue
		}
		r, err := ParseRule(clause)
		if err != nil {
			return Spec{}, fmt.Errorf("chaos: rule %d %s: %w", len(s.Rules)+1, quote(clause), err)
		}
		s.Rules = append(s.Rules, r)
	}
	if len(s.Rules) == 0 {
		return Spec{}, errors.New("chaos: the spec has no rule; the rule 200 answers every request with that status")
	}
	if err := s.check(); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// MustParse is [Parse] for package variables and tests: it panics with the error that
// Parse would return.
func MustParse(text string) Spec {
	s, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

// String returns the canonical text form, from which [Parse] returns the same spec.
func (s Spec) String() string {
	var list []string
	if s.Seed != 0 {
		list = append(list, "seed="+strconv.FormatUint(s.Seed, 10))
	}
	for _, r := range s.Rules {
		list = append(list, r.String())
	}
	return strings.Join(list, "; ")
}

// Validate returns the problems of the spec. It parses the text form, so that a spec
// without a valid text form is invalid too.
func (s Spec) Validate() error {
	_, err := Parse(s.String())
	return err
}

// check returns the problems of the spec that only show when its rules are complete.
// Parsing has already checked each word alone.
func (s Spec) check() error {
	var errs []error
	for i := range s.Rules {
		r := &s.Rules[i]
		problems := r.problems()
		for j := range i {
			if s.Rules[j].Match.covers(r.Match) {
				problems = append(problems, fmt.Errorf("no request reaches this rule: rule %d matches them all (%s)", j+1, s.Rules[j].Match))
				break
			}
		}
		if len(problems) > 0 {
			errs = append(errs, fmt.Errorf("chaos: rule %d %s: %w", i+1, quote(r.String()), oneline.Error(errors.Join(problems...))))
		}
	}
	if len(s.Rules) > maxRules {
		errs = append(errs, fmt.Errorf("chaos: %d rules are too many; at most %d", len(s.Rules), maxRules))
	}
	return errors.Join(errs...)
}

// split cuts a text at each character where sep returns true, except inside parentheses and
// quotes. sep gets the rest of the text from that character on.
func split(text string, sep func(rest string) bool) (parts []string, err error) {
	depth, begin, quoted := 0, 0, -1
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted >= 0:
			switch c {
			case '\\':
				i++
			case '"':
				quoted = -1
			}
		case c == '"':
			quoted = i
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth < 0 {
				return nil, fmt.Errorf("%q closes a parenthesis that is not open", text[begin:i+1])
			}
		case depth == 0 && sep(text[i:]):
			parts, begin = append(parts, text[begin:i]), i+1
		}
	}
	switch {
	case quoted >= 0:
		return nil, fmt.Errorf("%s has no closing quote", strconv.Quote(text[quoted:]))
	case depth > 0:
		return nil, fmt.Errorf("%s has no closing parenthesis", strconv.Quote(strings.TrimSpace(text[begin:])))
	}
	return append(parts, text[begin:]), nil
}

// at returns a function for split that cuts at each of the characters.
func at(chars string) func(string) bool {
	return func(rest string) bool { return strings.IndexByte(chars, rest[0]) >= 0 }
}

// words cuts a text at its white space.
func words(text string) ([]string, error) {
	parts, err := split(text, at(" \t\r\n"))
	return slices.DeleteFunc(parts, func(p string) bool { return p == "" }), err
}

// cutWord cuts a word at its last = that is not inside parentheses or quotes.
func cutWord(word string) (key, value string, found bool) {
	parts, err := split(word, at("="))
	if err != nil || len(parts) < 2 {
		return word, "", false
	}
	value = parts[len(parts)-1]
	return word[:len(word)-len(value)-1], value, true
}

// plainValue are the characters, besides letters and digits, that a value may have
// without quotes.
const plainValue = "._~%+:/*@-"

// unquote returns a value without its quotes, if it has any.
func unquote(value string) (string, error) {
	if !strings.HasPrefix(value, `"`) {
		if value == "" {
			return "", errors.New(`the value is missing; write "" for an empty value`)
		}
		return value, nil
	}
	text, err := strconv.Unquote(value)
	if err != nil {
		return "", fmt.Errorf("%s is not a text in quotes", value)
	}
	return text, nil
}

// enquote returns a value as a spec has it, in quotes if it needs them.
func enquote(value string) string {
	special := func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune(plainValue, r)
	}
	if value == "" || strings.ContainsFunc(value, special) {
		return strconv.QuoteToASCII(value)
	}
	return value
}
