package advise

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/sim"
)

// Choice is a setting of the policy, with the values that were tried instead.
// If another value makes no difference, the choice between the two is
// arbitrary; if every other value is worse, the choice is robust.
type Choice struct {
	Setting string       `json:"setting"` // attempts, base, jitter, attempt-timeout
	Value   string       `json:"value"`   // of the policy
	Ties    []string     `json:"ties"`    // values with which no measure changes
	Differ  []Difference `json:"differ"`  // values with which a measure changes
}

// Difference is the effect of another value of a setting: the measure that
// changes most.
type Difference struct {
	Value    string       `json:"value"`
	Scenario string       `json:"scenario"`
	Measure  string       `json:"measure"` // success, through, amplification, p99 or recovery
	Policy   sim.Estimate `json:"policy"`  // with the value of the policy
	Other    sim.Estimate `json:"other"`   // with this value
	Better   bool         `json:"better"`  // this value is better in this measure
}

// variant is a candidate that differs from another in one setting.
type variant struct {
	setting   string
	old, with string // the values of the setting
	candidate
}

// choices compares the best candidate with its variants, and returns what each
// of its settings decides.
func (s *search) choices(ctx context.Context, best candidate) ([]Choice, error) {
	variants := s.searchSpace.around(best)
	list := []candidate{best}
	for _, v := range variants {
		list = append(list, v.candidate)
	}
	ranked, err := s.rank(ctx, list, s.options.Seeds)
	if err != nil {
		return nil, err
	}
	of := map[candidate]*standing{}
	for i := range ranked {
		of[ranked[i].candidate] = &ranked[i]
	}
	found := []Choice{}
	for _, v := range variants {
		if n := len(found); n == 0 || found[n-1].Setting != v.setting {
			found = append(found, Choice{Setting: v.setting, Value: v.old, Ties: []string{}, Differ: []Difference{}})
		}
		c := &found[len(found)-1]
		if d, ok := s.largestDifference(of[best], of[v.candidate]); ok {
			d.Value = v.with
			c.Differ = append(c.Differ, d)
		} else {
			c.Ties = append(c.Ties, v.with)
		}
	}
	return found, nil
}

// largestDifference returns the measure in which a candidate differs most from
// the best one; false if they are tied.
func (s *search) largestDifference(best, other *standing) (most Difference, found bool) {
	size := 0.0
	for n := range other.results {
		a, b := &best.results[n], &other.results[n]
		for _, m := range measures {
			with, without := m.of(&a.Measures), m.of(&b.Measures)
			d := m.worse(with, without)
			if m.name == "peak" || with.N == 0 || without.N == 0 || m.tied(with, without) || !differs(m.of(b.Versus)) || math.Abs(d) <= size {
				continue
			}
			size, found = math.Abs(d), true
			most = Difference{Scenario: s.request.Cases[n].Scenario.Name, Measure: m.name, Policy: with, Other: without, Better: d < 0}
		}
	}
	return most, found
}

// Two values of a measure are tied if they differ by less than sameShare of the
// value; for the amplification, by less than sameLoad attempts per call.
const (
	sameShare = 0.1
	sameLoad  = 0.01
)

// tied reports whether two values of the measure are so close that the
// difference does not matter.
func (m measure) tied(a, b sim.Estimate) bool {
	if m.name == "amplification" {
		return math.Abs(a.Mean-b.Mean) < sameLoad
	}
	return math.Abs(m.worse(a, b)) < sameShare
}

// around returns candidates that differ from c in one setting, those with the
// same setting in a row.
func (f searchSpace) around(c candidate) (list []variant) {
	change := func(setting string, of func(candidate) string, do func(*candidate)) {
		n := c
		do(&n)
		known := slices.ContainsFunc(list, func(v variant) bool { return v.candidate == n })
		if n != c && !known && n.policy.Validate() == nil {
			list = append(list, variant{setting, of(c), of(n), n})
		}
	}
	if c.policy.Attempts > 1 {
		attempts := func(c candidate) string { return strconv.Itoa(c.policy.Attempts) }
		for _, n := range []int{c.policy.Attempts / 2, c.policy.Attempts - 1, c.policy.Attempts + 1, 2 * c.policy.Attempts} {
			if n > 1 && n <= max(mostAttempts, c.policy.Attempts) {
				change("attempts", attempts, func(c *candidate) { c.policy.Attempts = n })
			}
		}
		base := func(c candidate) string { return c.policy.Base.String() }
		change("base", base, func(c *candidate) { c.policy.Base = nice(c.policy.Base / 2) })
		change("base", base, func(c *candidate) {
			if c.policy.Base = min(nice(2*c.policy.Base), f.deadline); c.policy.Cap > 0 {
				c.policy.Base = min(c.policy.Base, c.policy.Cap)
			}
		})
		kind := func(c candidate) string {
			if c.policy.Kind == backoff.Decorrelated {
				return "decorrelated"
			}
			return c.policy.Jitter.String()
		}
		change("jitter", kind, func(c *candidate) { c.policy.Jitter = backoff.Equal })
		change("jitter", kind, func(c *candidate) {
			// Between equal limits a decorrelated delay would not be random.
			if base := max(c.policy.Base, time.Millisecond); c.policy.Cap > base {
				c.policy.Schedule = backoff.Schedule{Kind: backoff.Decorrelated, Base: base, Cap: c.policy.Cap}
			}
		})
	}
	if !f.writers {
		timeout := func(c candidate) string {
			if c.policy.AttemptTimeout == 0 {
				return "none"
			}
			return c.policy.AttemptTimeout.String()
		}
		if c.policy.AttemptTimeout > 0 {
			change("attempt-timeout", timeout, func(c *candidate) { c.policy.AttemptTimeout = nice(c.policy.AttemptTimeout / 2) })
		}
		change("attempt-timeout", timeout, func(c *candidate) {
			c.policy.AttemptTimeout = min(nice(2*cmp.Or(c.policy.AttemptTimeout, f.deadline)), f.longestAttempt())
		})
		if c.policy.Attempts == 1 {
			change("attempt-timeout", timeout, func(c *candidate) { c.policy.AttemptTimeout = 0 })
		}
	}
	return list
}
