package advise

import (
	"context"
	"math"

	"github.com/tideover/tideover/sim"
)

// Reason says why the policy has one of its features: how much worse a measure
// is without the feature.
type Reason struct {
	For      string       `json:"for"`                // retries, jitter, the last attempt, the budget, the breaker, the attempt timeout
	Scenario string       `json:"scenario,omitempty"` // where the effect is largest; empty if there is none
	Measure  string       `json:"measure,omitempty"`  // success, through, p99, amplification, recovery or peak
	With     sim.Estimate `json:"with,omitzero"`
	Without  sim.Estimate `json:"without,omitzero"`
	Never    float64      `json:"never,omitempty"` // recovery: share of the seeds that never recover without it
}

// Trade compares a measure with the policy and with a single attempt, where the two
// differ.
type Trade struct {
	Scenario string       `json:"scenario"`
	Measure  string       `json:"measure"`
	Single   sim.Estimate `json:"single"`
	Policy   sim.Estimate `json:"policy"`
	Better   bool         `json:"better"` // with the policy
}

// lesser is the best policy with one feature removed.
type lesser struct {
	lacks string
	standing
}

// strip removes features from the best policy as long as it is preferred without them.
// It returns the resulting policy. It never removes jitter and the attempt timeout: they
// help callers that fail together and calls that are never answered, which few scenarios
// contain.
func (s *search) strip(ctx context.Context, best candidate) (standing, error) {
	whole := best
	for {
		list := []candidate{best}
		names, lacking := without(best)
		for i, c := range lacking {
			if names[i] != jitter && names[i] != attemptTimeout {
				list = append(list, c)
			}
		}
		// The first policy stays in the comparison, so that small losses do not add up.
		ranked, err := s.rank(ctx, unique(append(list, whole)), s.options.Seeds)
		if err != nil || ranked[0].candidate == best || ranked[0].candidate == whole {
			return ranked[0], err
		}
		best = ranked[0].candidate
	}
}

// compareWithout measures a policy, and the variants of it that lack one feature each.
func (s *search) compareWithout(ctx context.Context, best candidate) (standing, []lesser, error) {
	names, list := without(best)
	ranked, err := s.rank(ctx, append([]candidate{best}, list...), s.options.Seeds)
	if err != nil {
		return standing{}, nil, err
	}
	of := map[candidate]standing{}
	for _, st := range ranked {
		of[st.candidate] = st
	}
	var others []lesser
	for i, c := range list {
		others = append(others, lesser{names[i], of[c]})
	}
	return of[best], others, nil
}

// measure is a measure that a reason or a trade may name.
type measure struct {
	name string
	more bool // a larger value is better
	of   func(*sim.Measures[sim.Estimate]) sim.Estimate
}

var measures = []measure{
	{"success", true, func(m *sim.Measures[sim.Estimate]) sim.Estimate { return m.Success }},
	{"through", true, func(m *sim.Measures[sim.Estimate]) sim.Estimate { return m.OutageSuccess }},
	{"amplification", false, func(m *sim.Measures[sim.Estimate]) sim.Estimate { return m.Amplification }},
	{"p99", false, func(m *sim.Measures[sim.Estimate]) sim.Estimate { return m.P99 }},
	{"recovery", false, func(m *sim.Measures[sim.Estimate]) sim.Estimate { return m.Recovery }},
	{"peak", false, func(m *sim.Measures[sim.Estimate]) sim.Estimate { return m.Peak }},
}

// worse returns how much worse b is than a: the logarithm of the ratio of their
// values, or for success, of the shares of calls that fail. It is negative if b is
// better.
func (m measure) worse(a, b sim.Estimate) float64 {
	x, y := a.Mean, b.Mean
	if m.more {
		x, y = 1-x, 1-y
	}
	return math.Log(math.Max(y, 1e-6) / math.Max(x, 1e-6))
}

// slight is the largest value of worse that is ignored even if the difference is
// significant.
const slight = 0.01

// differs reports whether a difference is significant: its 95 % interval does
// not contain zero.
func differs(d sim.Estimate) bool { return d.N > 1 && math.Abs(d.Mean) > d.Half }

// reasons returns, for each feature of the best policy, the scenario and the measure
// that get worst if the feature is removed.
func (s *search) reasons(best standing, others []lesser) []Reason {
	list := []Reason{}
	for _, o := range others {
		reason, most := Reason{For: o.lacks}, slight
		for n := range o.results {
			with, without := &best.results[n], &o.results[n]
			if d := 5 * (without.NeverRecovers - with.NeverRecovers); d > most {
				most = d
				reason = Reason{o.lacks, s.request.Cases[n].Scenario.Name, "recovery", with.Recovery, without.Recovery, without.NeverRecovers}
			}
			for _, m := range measures {
				a, b := m.of(&with.Measures), m.of(&without.Measures)
				if d := m.worse(a, b); d > most && a.N > 0 && b.N > 0 && differs(m.of(without.Versus)) {
					most = d
					reason = Reason{o.lacks, s.request.Cases[n].Scenario.Name, m.name, a, b, 0}
				}
			}
		}
		list = append(list, reason)
	}
	return list
}

// trades returns the costs and benefits of the policy, compared with a single
// attempt.
func (s *search) trades(best standing, others []lesser) []Trade {
	list := []Trade{}
	for _, o := range others {
		if o.lacks != retries {
			continue
		}
		for n := range o.results {
			for _, m := range measures {
				with, single := m.of(&best.results[n].Measures), m.of(&o.results[n].Measures)
				d := m.worse(with, single)
				if math.Abs(d) > slight && with.N > 0 && single.N > 0 && differs(m.of(o.results[n].Versus)) {
					list = append(list, Trade{s.request.Cases[n].Scenario.Name, m.name, single, with, d > 0})
				}
			}
		}
	}
	return list
}
