package advise

import (
	"cmp"
	"math"
	"slices"

	"github.com/tideover/tideover/sim"
)

// Alternative is another policy that is as close to the goal as the best one, or
// nearly, and better in another respect.
type Alternative struct {
	Policy   string    `json:"policy"`
	Breaker  bool      `json:"breaker"`
	For      string    `json:"for"` // less load, fewer slow calls, more success, or less to understand
	Reached  bool      `json:"reached"`
	Outcomes []Outcome `json:"outcomes"`
}

// near is how much greater than the best policy's the distance of an alternative from
// the goal may be.
const near = 0.2

// nearDay is how many fewer calls may succeed on an ordinary day with an alternative.
const nearDay = 0.01

// alternatives returns up to four alternatives to the best candidate, one for each
// respect in which a candidate can be better: of the candidates that are nearly as
// close to the goal, the one that is best in this respect.
func (s *search) alternatives(best standing, standings []standing) []Alternative {
	list := []Alternative{}
	taken := map[candidate]bool{best.candidate: true}
	for _, better := range []struct {
		what string
		of   func(*standing) float64 // less is better
		by   float64                 // by at least this much
	}{
		{"more success", func(st *standing) float64 { return math.Log(st.failing()) }, 0.1},
		{"fewer slow calls", func(st *standing) float64 { return math.Log(st.slow) }, 0.1},
		{"less load", func(st *standing) float64 { return st.load }, 0.02},
		{"less to understand", func(st *standing) float64 { return float64(st.parts()) }, 1},
	} {
		others := slices.DeleteFunc(slices.Clone(standings), func(st standing) bool {
			return taken[st.candidate] || st.distance > best.distance+near || st.day < best.day-nearDay || better.of(&st) > better.of(&best)-better.by
		})
		if len(others) == 0 {
			continue
		}
		one := slices.MinFunc(others, func(a, b standing) int { return cmp.Compare(better.of(&a), better.of(&b)) })
		taken[one.candidate] = true
		list = append(list, Alternative{one.text(), one.breaker, better.what, one.reached(), s.outcomes(one)})
	}
	return list
}

// failing returns the share of calls that fail, as the mean over the scenarios.
func (st *standing) failing() float64 {
	sum := 0.0
	for i := range st.results {
		sum += 1 - st.results[i].Success.Mean
	}
	return math.Max(sum/float64(len(st.results)), 1e-9)
}

// outcomes returns the results of a candidate, for each scenario.
func (s *search) outcomes(st standing) (list []Outcome) {
	for i, r := range st.results {
		c := &s.request.Cases[i]
		o := Outcome{Scenario: c.Scenario.Name, Goal: c.Goal, Measures: r.Measures, NeverRecovers: r.NeverRecovers}
		// If all calls of all runs succeed, the interval of the runs would be empty.
		o.Success.Half = math.Max(o.Success.Half, resolution(o.Success.Mean, o.Calls))
		if o.OutageSuccess.N > 0 {
			o.OutageSuccess.Half = math.Max(o.OutageSuccess.Half, resolution(o.OutageSuccess.Mean, o.OutageCalls))
		}
		if !c.hasEnd() {
			o.Recovery, o.NeverRecovers = sim.Estimate{}, 0
		}
		if len(c.Scenario.Services) > 0 {
			o.Capacity = c.Scenario.Services[0].MaxRate()
		}
		list = append(list, o)
	}
	return list
}

// missed returns the index of the case and the part of its goal that a miss is about.
func (s *search) missed(m *Miss) (n int, a aim) {
	n = slices.IndexFunc(s.request.Cases, func(c Case) bool { return c.Scenario.Name == m.Scenario })
	aims := s.request.Cases[n].Goal.aims()
	return n, aims[slices.IndexFunc(aims, func(a aim) bool { return a.name == m.Goal })]
}

// shortfalls sets the field Best of each miss: the best value that any of the
// candidates reaches, even if the candidate misses other parts of the goal.
func (s *search) shortfalls(misses []Miss, checked []standing) []Miss {
	for i := range misses {
		m := &misses[i]
		n, a := s.missed(m)
		best := bestIn(checked, n, a)
		m.Best = a.of(&best.results[n]).Mean
	}
	return misses
}
