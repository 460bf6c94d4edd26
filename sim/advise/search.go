package advise

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/sim"
)

// standing is the result of a candidate.
type standing struct {
	candidate
	results  []sim.Result // of each scenario
	misses   []Miss
	distance float64 // from the goal
	harm     float64 // how many fewer calls succeed than with one patient attempt, the sum over the scenarios
	never    float64 // share of the runs without a recovery, the sum over the scenarios
	load     float64 // attempts per call, 1 at least, the mean over the scenarios
	slow     float64 // p99 in seconds, the mean over the scenarios
}

// compare orders standings, the best first. It rounds values, so that
// differences below the noise of a few seeds are ignored.
func compare(a, b standing) int {
	return cmp.Or(
		cmp.Compare(min(len(a.misses), 1), min(len(b.misses), 1)),
		cmp.Compare(math.Round(a.distance*100), math.Round(b.distance*100)),
		cmp.Compare(math.Round(a.harm*50), math.Round(b.harm*50)),
		cmp.Compare(math.Round(a.never*10), math.Round(b.never*10)),
		cmp.Compare(math.Round(a.load*100), math.Round(b.load*100)),
		cmp.Compare(math.Round(math.Log(a.slow)*20), math.Round(math.Log(b.slow)*20)),
		cmp.Compare(a.parts(), b.parts()),
		cmp.Compare(a.policy.Attempts, b.policy.Attempts),
		cmp.Compare(a.distance, b.distance),
		cmp.Compare(a.String(), b.String()),
	)
}

// search is the state of a search.
type search struct {
	request     Request
	options     Options
	searchSpace searchSpace
	known       map[candidate]bool
	patient     []float64  // for each case, the success of one attempt that waits until the deadline
	first       []standing // standings of the first round: all candidates of the grid
	fresh       uint64     // added to the seed, so that a later comparison does not use the seeds of an earlier one
	runs        int
	events      int
	total       int // estimated number of runs
}

// rungs are the rounds of the search. Each simulates every candidate with this number
// of seeds, and keeps one in keep of the candidates.
var rungs = []struct{ seeds, keep int }{{1, 3}, {2, 3}, {4, 2}}

// fewest is the least number of candidates that stay in each round.
const fewest = 6

// climb compares the candidates in rounds until a few are left, and returns
// those, the best first.
func (s *search) climb(ctx context.Context) ([]standing, error) {
	list := s.searchSpace.candidates()
	s.estimateRuns(len(list))
	for i, rung := range rungs {
		standings, err := s.rank(ctx, list, rung.seeds*s.searchSpace.times)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			s.first = standings
		}
		list = candidatesOf(standings[:min(len(standings), max(len(standings)/rung.keep, fewest))])
	}
	return s.rank(ctx, list, s.options.Seeds)
}

func candidatesOf(standings []standing) (list []candidate) {
	for _, st := range standings {
		list = append(list, st.candidate)
	}
	return list
}

// measurePatience measures, for each scenario, the success of a single attempt that
// waits until the deadline, without a breaker. A policy with less success than that
// does harm.
func (s *search) measurePatience(ctx context.Context) error {
	one := candidate{policy: s.searchSpace.policy(1, 0, 0, limit.BudgetSpec{})}
	for _, c := range s.request.Cases {
		report, err := s.run(ctx, c.Scenario, []sim.Contestant{one.contestant()}, rungs[len(rungs)-1].seeds*s.searchSpace.times)
		if err != nil {
			return err
		}
		s.patient = append(s.patient, report.Results[0].Success.Mean)
	}
	return nil
}

// estimateRuns estimates the number of runs, for Options.Progress.
func (s *search) estimateRuns(n int) {
	each := len(s.request.Cases)
	for _, rung := range rungs {
		s.total += n * rung.seeds * s.searchSpace.times * each
		n = min(n, max(n/rung.keep, fewest))
	}
	s.total += (n + 2*(n+8) + n + 8 + 7 + 9 + checkFactor) * s.options.Seeds * each
}

// refine compares the best candidate with its neighbours, and repeats that once
// if a neighbour was better.
func (s *search) refine(ctx context.Context, standings []standing) ([]standing, error) {
	for range 2 {
		best := standings[0].candidate
		list := candidatesOf(standings[:min(len(standings), fewest)])
		var err error
		for _, v := range s.searchSpace.around(best) {
			list = append(list, v.candidate)
		}
		if standings, err = s.rank(ctx, unique(list), s.options.Seeds); err != nil {
			return nil, err
		}
		if standings[0].candidate == best {
			break
		}
	}
	return standings, nil
}

// checkFactor is how many times as many runs as the finalists had measure the
// policy that is advised: some failures are rare.
const checkFactor = 5

// check measures the policy that is advised, with seeds that no comparison has
// used.
func (s *search) check(ctx context.Context, c candidate) (standing, error) {
	s.fresh = 3 << 32
	list, err := s.rank(ctx, []candidate{c}, checkFactor*s.options.Seeds)
	if err != nil {
		return standing{}, err
	}
	return list[0], nil
}

// rank simulates candidates in all scenarios, and returns them in order.
func (s *search) rank(ctx context.Context, list []candidate, seeds int) ([]standing, error) {
	contestants := make([]sim.Contestant, len(list))
	standings := make([]standing, len(list))
	for i, c := range list {
		contestants[i], standings[i].candidate = c.contestant(), c
		s.known[c] = true
	}
	for n, c := range s.request.Cases {
		report, err := s.run(ctx, c.Scenario, contestants, seeds)
		if err != nil {
			return nil, err
		}
		for i := range report.Results {
			standings[i].add(c.Goal, c.Scenario.Name, s.patient[n], &report.Results[i])
		}
	}
	n := float64(len(s.request.Cases))
	for i := range standings {
		standings[i].load /= n
		standings[i].slow /= n
	}
	slices.SortFunc(standings, compare)
	return standings, nil
}

func (st *standing) add(g Goal, scenario string, patient float64, r *sim.Result) {
	misses, distance := g.check(scenario, r)
	st.misses = append(st.misses, misses...)
	st.distance += distance
	// Below 1, a breaker has rejected calls: that does not count as less load.
	st.load += math.Max(r.Amplification.Mean, 1)
	st.never += r.NeverRecovers
	st.harm += math.Max(patient-r.Success.Mean, 0)
	st.slow += r.P99.Mean
	// The series are not needed, and those of a hundred candidates are large.
	st.results = append(st.results, sim.Result{
		Name: r.Name, Policy: r.Policy, Measures: r.Measures, NeverRecovers: r.NeverRecovers, Versus: r.Versus,
	})
}

func (s *search) run(ctx context.Context, scenario sim.Scenario, contestants []sim.Contestant, seeds int) (*sim.Report, error) {
	before := s.runs
	report, err := sim.Run(ctx, scenario, contestants, sim.Options{
		Seed: s.options.Seed + s.fresh, Seeds: seeds, Workers: s.options.Workers,
		Progress: func(done, _ int) {
			s.runs = before + done
			if s.options.Progress != nil {
				s.options.Progress(s.runs, max(s.total, s.runs))
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("advise: %w", err)
	}
	s.events += report.Events
	return report, nil
}
