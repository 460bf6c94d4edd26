package chaos

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tideover/tideover/internal/oneline"
)

// MaxText is the longest text of a spec that is read, in bytes.
const MaxText = 64 << 10

// maxRules bounds the number of rules.
const maxRules = 200

// Parse reads a spec from its text form: rules with semicolons or line ends
// between them, and seed=N before them if there is to be one.
//
//	503,503,200
//	/v1/messages: 429(retry-after=2)x2,200; *: fail=20% delay=50ms..200ms
//	seed=7; POST /v1: reset=1% concurrent=4 over=429(retry-after=due) down 30s every 5m
//
// An error quotes the word that is wrong. A spec that Parse returns is valid.
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
			if s.Seed, err = parseSeed(digits); err != nil {
				return Spec{}, err
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
		return Spec{}, errors.New("chaos: there is no rule; 200 answers everything")
	}
	if err := s.check(); err != nil {
		return Spec{}, err
	}
	return s, nil
}

func parseSeed(digits string) (uint64, error) {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("chaos: seed: %q is not a whole number such as 7", digits)
	}
	return n, nil
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

// String returns the one text form from which [Parse] returns the same spec.
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

// Validate reports what is wrong with the spec. What the text can't say is not
// valid, so that all mistakes are found in one place.
func (s Spec) Validate() error {
	_, err := Parse(s.String())
	return err
}

// check reports everything that no single word is to blame for.
func (s Spec) check() error {
	var errs []error
	for i := range s.Rules {
		r := &s.Rules[i]
		problems := r.problems()
		for j := range i {
			if s.Rules[j].Match.covers(r.Match) {
				problems = append(problems, fmt.Errorf("no request gets here: rule %d takes them all (%s)", j+1, s.Rules[j].Match))
				break
			}
		}
		if len(problems) > 0 {
			errs = append(errs, fmt.Errorf("chaos: rule %d %s: %w", i+1, quote(r.String()), oneline.Error(errors.Join(problems...))))
		}
	}
	if len(s.Rules) > maxRules {
		errs = append(errs, fmt.Errorf("chaos: %d rules are more than %d", len(s.Rules), maxRules))
	}
	return errors.Join(errs...)
}
