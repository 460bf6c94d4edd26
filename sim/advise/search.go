package advise

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tideover/tideover/sim"
)

// search is the state of a search.
type search struct {
	request     Request
	options     Options
	searchSpace searchSpace
	naive       []candidate
	known       map[candidate]bool // every candidate that was simulated
	patient     []float64          // for each case, the success of one attempt that waits until the deadline
	least       float64            // the margin that a candidate must have to reach the goal
	stretch     time.Duration      // factor for the length of an ordinary day
	fresh       uint64             // added to the seed, so that a later comparison does not use the seeds of an earlier one
	earlier     *standing          // its results count for the cases that are left out; nil if there are none
	runs        int
	events      int
	total       int // estimated number of runs
}

// rungs are the rounds of the search. Each simulates every candidate with this number
// of seeds, and keeps at most this number of candidates.
var rungs = []struct{ seeds, keep int }{{1, 40}, {2, 16}, {4, 8}}

// climb compares the candidates in rounds until a few are left, and returns
// those, the best first. The first round leaves out the scenarios without a goal.
func (s *search) climb(ctx context.Context) ([]standing, error) {
	list := unique(append(s.searchSpace.candidates(), s.naive...))
	s.estimateRuns(len(list))
	for i, rung := range rungs {
		rank := s.rank
		if i == 0 {
			rank = s.screen
		}
		standings, err := rank(ctx, list, rung.seeds*s.searchSpace.times)
		if err != nil {
			return nil, err
		}
		list = candidatesOf(survivors(standings, rung.keep))
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
	for _, c := range s.request.Cases {
		report, err := s.run(ctx, c.Scenario, []sim.Contestant{s.searchSpace.patient().contestant()}, rungs[len(rungs)-1].seeds*s.searchSpace.times)
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
		n = min(n, rung.keep)
	}
	s.total += (n + 2*(n+8) + n + 8 + 7 + 9 + checkFactor) * s.options.Seeds * each
}

// The local search makes this number of random variants of the best candidates in a
// generation, and stops when the goal is reached or after this number of generations.
const (
	mutants     = 24
	generations = 6
)

// explore searches around the best candidates at random, as long as none of them
// reaches the goal. The last standing of each is from as many seeds as the finalists
// have.
func (s *search) explore(ctx context.Context, standings []standing) ([]standing, error) {
	random := rand.New(rand.NewPCG(s.options.Seed, uint64(len(s.known))))
	for range generations {
		if best := standings[preferred(standings)]; best.reached() && !best.unstable {
			return standings, nil
		}
		parents := survivors(standings, fewest)
		var list []candidate
		for tries := 0; len(list) < mutants && tries < 20*mutants; tries++ {
			c := s.searchSpace.mutant(parents[random.IntN(len(parents))].candidate, random)
			if !s.known[c] && c.policy.Validate() == nil && !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
		for _, v := range s.searchSpace.around(parents[0].candidate) {
			list = append(list, v.candidate)
		}
		list = unique(slices.DeleteFunc(list, func(c candidate) bool { return contains(parents, c) }))
		children, err := s.screen(ctx, append(list, candidatesOf(parents)...), rungs[1].seeds*s.searchSpace.times)
		if err != nil {
			return nil, err
		}
		if standings, err = s.rank(ctx, candidatesOf(survivors(children, fewest)), s.options.Seeds); err != nil {
			return nil, err
		}
	}
	return standings, nil
}

// exploreSurely explores, and compares the result with the naive policies. If the search ended because
// a candidate reached the goal, and with the seeds of the comparison none does, that one was lucky:
// some policies overload a service only now and then. The search goes on once, with other seeds.
func (s *search) exploreSurely(ctx context.Context, standings []standing) ([]standing, error) {
	defer func() { s.fresh = 0 }()
	for _, s.fresh = range []uint64{0, otherSeeds} {
		more, err := s.explore(ctx, standings)
		if err != nil {
			return nil, err
		}
		looksReached := more[preferred(more)].reached()
		if standings, err = s.compareWithNaive(ctx, more); err != nil {
			return nil, err
		}
		if !looksReached || standings[preferred(standings)].reached() {
			break
		}
	}
	return standings, nil
}

// otherSeeds is added to the seed by the second search of exploreSurely.
const otherSeeds = 9 << 32

// fewest is the number of candidates that a generation and a refinement begin with.
const fewest = 6

// refine compares the best candidate with its neighbours, and repeats that once
// if a neighbour was better.
func (s *search) refine(ctx context.Context, standings []standing) ([]standing, error) {
	for range 2 {
		list := survivors(standings, fewest)
		best := list[0].candidate
		around := candidatesOf(list)
		for _, v := range s.searchSpace.around(best) {
			around = append(around, v.candidate)
		}
		var err error
		if standings, err = s.rank(ctx, unique(around), s.options.Seeds); err != nil {
			return nil, err
		}
		if standings[0].candidate == best {
			break
		}
	}
	return standings, nil
}

// compareWithNaive compares the best standings with the naive policies, with new seeds.
func (s *search) compareWithNaive(ctx context.Context, standings []standing) ([]standing, error) {
	s.fresh = 1 << 32
	defer func() { s.fresh = 0 }()
	return s.rank(ctx, unique(append(candidatesOf(survivors(standings, finalists)), s.naive...)), s.options.Seeds)
}

// finalists is the number of candidates that are compared with the naive policies.
const finalists = 8

// losses returns the measures that are better with another policy: the success on an
// ordinary day, and those of the parts of the goal that the advised policy misses.
func (s *search) losses(advised standing, checked []standing) (list []Loss) {
	for n := range s.request.Cases {
		c, own := &s.request.Cases[n], &advised.results[n]
		var aims []aim
		if s.isDay(c) {
			aims = append(aims, success)
		}
		for _, a := range c.Goal.aims() {
			if _, _, d := a.distance(own); d > 0 {
				aims = append(append(aims, also[a.name]...), a)
			}
		}
		for _, a := range slices.CompactFunc(aims, func(a, b aim) bool { return a.name == b.name }) {
			other := bestIn(checked, n, a)
			if r := &other.results[n]; a.rank(r) < a.rank(own)*(1-slight)-0.002 {
				list = append(list, Loss{c.Scenario.Name, a.name, other.text(), other.breaker, a.of(own), a.of(r)})
			}
		}
	}
	return list
}

// The last measurement has checkFactor times as many runs as the finalists had,
// because some failures are rare. For an ordinary day it has half as many runs as they
// had, but each is dayFactor times as long: a policy whose retries overload the service
// may need hours for it.
const (
	checkFactor = 5
	dayFactor   = 10
)

// check measures a candidate for the last time, with seeds that no comparison has
// used. If only the intervals miss the goal, it measures with more seeds. factors are the
// factors for the number of seeds.
func (s *search) check(ctx context.Context, c candidate, factors ...int) (st standing, err error) {
	s.fresh, s.least = uint64(2+factors[0])<<32, 0
	for _, times := range factors {
		list, err := s.measure(ctx, []candidate{c}, func(c *Case) (sim.Scenario, int) {
			switch {
			case s.earlier != nil && c.Goal == (Goal{}) && !s.isDay(c):
				return c.Scenario, 0
			case !c.canLast():
				return c.Scenario, times * checkFactor * s.options.Seeds
			}
			return stretched(c, dayFactor), times * max(s.options.Seeds*checkFactor/dayFactor, fewSeeds, c.neededDays())
		})
		if err != nil {
			return st, err
		}
		st = list[0]
		if len(st.misses) == 0 || st.missesSurely() {
			break
		}
	}
	return st, nil
}

// A failure that is rare must happen this often in the last measurement, if this number of
// calls is enough for it.
const (
	enoughFailures = 20
	mostCalls      = 500_000
)

// rarest returns the smallest share of the calls that a lasting failure affects; 1 if
// there is no such failure.
func (c *Case) rarest() float64 {
	share := 1.0
	for _, f := range c.Scenario.Failures {
		switch f.Kind {
		case sim.Errors, sim.Reject, sim.BlackHole:
			if f.Share > 0 {
				share = math.Min(share, f.Share)
			}
		}
	}
	return share
}

// neededDays returns how many ordinary days of the last measurement have enough failures
// of the rarest kind. One of them may delay many calls.
func (c *Case) neededDays() int {
	calls := c.Scenario.Clients.Rate * c.Scenario.Duration.Seconds() * dayFactor
	if calls <= 0 || c.Goal.Success == 0 {
		return 0
	}
	return int(math.Ceil(math.Min(enoughFailures/c.rarest(), mostCalls) / calls))
}

// canLast reports whether the case can be longer without being another case: nothing in
// it ends, and calls arrive all the time.
func (c *Case) canLast() bool {
	return !c.hasEnd() && len(c.Scenario.Services) > 0 && c.Scenario.Clients.Arrivals != sim.Herd
}

// stretched returns the scenario of the case, longer by the factor if it can be.
func stretched(c *Case, factor time.Duration) sim.Scenario {
	s := c.Scenario
	if c.canLast() {
		s.Duration *= factor
		s.Bucket = cmp.Or(s.Bucket, sim.DefaultBucket) * factor
	}
	return s
}

// neededStretch returns the factor for the length of an ordinary day with which the runs
// of a finalist have enough calls for the goal of success: ten failures are allowed, and
// the rarest ones happen.
func (s *search) neededStretch(finalist standing) time.Duration {
	need := 1.0
	for i, c := range s.request.Cases {
		if r := finalist.results[i]; c.canLast() && c.Goal.Success > 0 {
			need = math.Max(need, math.Max(10/(1-c.Goal.Success), 10/c.rarest())/(r.Calls.Mean*float64(r.Calls.N)))
		}
	}
	return time.Duration(math.Min(math.Ceil(need), dayFactor))
}

// decide measures the best of the candidates, all of which it gets in the order of
// preference, for the last time. It goes on with others, as long as one of them may be
// better than the best so far. It returns what it has measured, the best first.
func (s *search) decide(ctx context.Context, standings []standing) (checked []standing, err error) {
	measure := func(c candidate) error {
		if contains(checked, c) {
			return nil
		}
		st, err := s.check(ctx, c, 1, 4)
		checked = inOrder(append(checked, st), preferred)
		return err
	}
	if err := measure(standings[0].candidate); err != nil {
		return nil, err
	}
	for range maxChecked - 1 {
		next, found := s.rival(checked, standings)
		if !found {
			break
		}
		if err := measure(next); err != nil {
			return nil, err
		}
	}
	var more []candidate
	if checked[0].day < 0.99 { // retries may need longer runs than those of the search to overload the service
		more = append(more, s.searchSpace.patient())
	}
	// The advice says by how much more calls would succeed with this one.
	if best := slices.MaxFunc(standings, func(a, b standing) int { return cmp.Compare(a.day, b.day) }); best.day+best.dayNoise() > checked[0].day+0.005 {
		more = append(more, best.candidate)
	}
	if !checked[0].reached() {
		more = append(more, s.closeRivals(checked[0], standings)...)
	}
	for _, c := range more {
		if err := measure(c); err != nil {
			return nil, err
		}
	}
	if checked[0].reached() {
		return checked, nil
	}
	return s.confirm(ctx, checked)
}

// putNaiveFirst puts a naive policy first if it is nearer to the goal that the first standing misses, and
// its ordinary day is at most half a point worse, apart from noise. The order of preference does not
// ensure that: the day of the first one may be worse than that of another one, too.
func (s *search) putNaiveFirst(checked []standing) []standing {
	for !checked[0].reached() {
		first := &checked[0]
		i := slices.IndexFunc(checked, func(st standing) bool {
			return slices.Contains(s.naive, st.candidate) && (first.unstable || !st.unstable) && st.day > first.day-0.005-first.dayNoise() &&
				toRestOfGoal.of(&st) < toRestOfGoal.of(first)-toRestOfGoal.tolerance(first)
		})
		if i < 0 {
			break
		}
		checked = slices.Concat(checked[i:i+1], checked[:i], checked[i+1:])
	}
	return checked
}

// contains reports whether one of the standings is that of the candidate.
func contains(list []standing, c candidate) bool {
	return slices.ContainsFunc(list, func(st standing) bool { return st.candidate == c })
}

// closeRivals returns the candidates that are measured for the last time if the goal is
// missed, because the results of the search are not exact enough to leave them out: the
// first ones in the order of preference, and for each measure in which best misses the
// goal, the candidate with the best value and the naive ones that may be better than best.
func (s *search) closeRivals(best standing, standings []standing) (list []candidate) {
	order := inOrder(standings, preferred)
	list = candidatesOf(order[:min(len(order), 5)])
	for i := range best.misses {
		n, missed := s.missed(&best.misses[i])
		for _, a := range append(also[missed.name], missed) {
			list = append(list, bestIn(order, n, a).candidate)
			for _, st := range order {
				if slices.Contains(s.naive, st.candidate) && a.rank(&st.results[n]) < (1+near)*a.rank(&order[0].results[n]) {
					list = append(list, st.candidate)
				}
			}
		}
	}
	return list
}

// confirm measures one patient attempt and the first of the standings with more and other
// seeds, if the best one misses the goal by a value that is noisy: else the best may be the
// one that was lucky. It returns those first, in order.
func (s *search) confirm(ctx context.Context, checked []standing) (list []standing, err error) {
	confirmed := map[candidate]bool{}
	next := slices.IndexFunc(checked, func(st standing) bool { return st.candidate == s.searchSpace.patient() })
	noisy := slices.ContainsFunc(checked[0].misses, func(m Miss) bool {
		return m.Got.Half > 0.01 && (m.Goal == "success" || m.Goal == "through" || m.Got.Half > 0.05*m.Got.Mean)
	})
	defer func() { s.earlier = nil }()
	for next = max(next, 0); noisy && next >= 0 && next < len(checked) && len(confirmed) < maxChecked; {
		st := checked[next]
		confirmed[st.candidate], s.earlier = true, &st
		if checked[next], err = s.check(ctx, st.candidate, 4); err != nil {
			return nil, err
		}
		checked = inOrder(checked, preferred)
		next = slices.IndexFunc(checked[:min(len(checked), 4)], func(st standing) bool { return !confirmed[st.candidate] })
	}
	slices.SortStableFunc(checked, func(a, b standing) int { return boolToInt(confirmed[b.candidate]) - boolToInt(confirmed[a.candidate]) })
	return checked, nil
}

// bestIn returns the standing with the best value of a measure of case n.
func bestIn(list []standing, n int, a aim) standing {
	return slices.MinFunc(list, func(x, y standing) int { return cmp.Compare(a.rank(&x.results[n]), a.rank(&y.results[n])) })
}

// maxChecked is the largest number of candidates in the last measurement.
const maxChecked = 8

// safest returns the standing with the largest margin. Of those that look equal it is the one with
// the longest attempt timeout: only long runs show that retries of slow attempts overload a service.
func safest(list []standing) standing {
	most := slices.MaxFunc(list, func(a, b standing) int { return cmp.Compare(a.margin, b.margin) }).margin
	equal := slices.DeleteFunc(slices.Clone(list), func(st standing) bool { return st.margin < most-toGoal.tolerance(nil) })
	return slices.MaxFunc(equal, func(a, b standing) int { return cmp.Compare(a.longestAttempt(), b.longestAttempt()) })
}

// rival returns a candidate that may be better than the best of those that were
// measured for the last time: it is preferred to the best by the results of the search.
// If the best does not reach the goal, the rival is the one with the largest margin.
func (s *search) rival(checked, standings []standing) (candidate, bool) {
	best := checked[0]
	var rivals []standing
	for _, st := range standings {
		if !contains(checked, st.candidate) && preferred([]standing{best, st}) == 1 {
			rivals = append(rivals, st)
		}
	}
	if len(rivals) == 0 {
		return candidate{}, false
	}
	next := rivals[preferred(rivals)]
	if !best.reached() && next.reached() {
		next = safest(rivals)
	}
	return next.candidate, true
}

// rank simulates candidates in all scenarios, and returns them in order.
func (s *search) rank(ctx context.Context, list []candidate, seeds int) ([]standing, error) {
	return s.measure(ctx, list, func(c *Case) (sim.Scenario, int) { return stretched(c, s.stretch), seeds })
}

// screen is rank without the scenarios that have no goal and are no ordinary day.
func (s *search) screen(ctx context.Context, list []candidate, seeds int) ([]standing, error) {
	return s.measure(ctx, list, func(c *Case) (sim.Scenario, int) {
		if c.Goal == (Goal{}) && !s.isDay(c) {
			return c.Scenario, 0
		}
		return stretched(c, s.stretch), seeds
	})
}

// isDay reports whether the case is an ordinary day: nothing in it ends. If there is no
// such case, every case is.
func (s *search) isDay(c *Case) bool {
	return !c.hasEnd() || !slices.ContainsFunc(s.request.Cases, func(c Case) bool { return !c.hasEnd() })
}

// hasGoalOnDay reports whether a part of the goal is about an ordinary day.
func (s *search) hasGoalOnDay() bool {
	return slices.ContainsFunc(s.request.Cases, func(c Case) bool { return s.isDay(&c) && (c.Goal.Success > 0 || c.Goal.P99 > 0) })
}

// measure simulates candidates in all scenarios, and returns them in order. how
// returns the scenario of a case and the number of runs; 0 leaves the case out.
func (s *search) measure(ctx context.Context, list []candidate, how func(*Case) (sim.Scenario, int)) ([]standing, error) {
	contestants := make([]sim.Contestant, len(list))
	standings := make([]standing, len(list))
	for i, c := range list {
		contestants[i] = c.contestant()
		standings[i] = standing{
			candidate: c, results: make([]sim.Result, len(s.request.Cases)), margin: math.Inf(1),
			unstable: s.searchSpace.unstable(c), calm: s.searchSpace.calm(c), lasts: !s.searchSpace.overloads(c) || !s.hasGoalOnDay(),
		}
	}
	cases, days := 0.0, 0.0
	for n := range s.request.Cases {
		c := &s.request.Cases[n]
		scenario, seeds := how(c)
		if seeds == 0 {
			if s.earlier != nil {
				cases++
				standings[0].add(n, c, s.patient[n], s.least, false, &s.earlier.results[n])
			}
			continue
		}
		report, err := s.run(ctx, scenario, contestants, seeds)
		if err != nil {
			return nil, err
		}
		cases++
		if s.isDay(c) {
			days++
		}
		for i := range report.Results {
			standings[i].add(n, c, s.patient[n], s.least, s.isDay(c), &report.Results[i])
		}
	}
	for i := range standings {
		st := &standings[i]
		st.load /= cases
		st.slow /= cases
		st.day /= days
		s.known[st.candidate] = true
	}
	return inOrder(standings, preferred), nil
}

// add adds the result of case n.
func (st *standing) add(n int, c *Case, patient, least float64, day bool, r *sim.Result) {
	misses, distance, margin := c.Goal.check(c.Scenario.Name, r, least)
	st.misses = append(st.misses, misses...)
	st.distance += distance
	st.margin = math.Min(st.margin, margin)
	// Below 1, a breaker has rejected calls: that does not count as less load.
	st.load += math.Max(r.Amplification.Mean, 1)
	if c.hasEnd() {
		st.never += r.NeverRecovers
	}
	if day {
		st.onTheDay += c.Goal.distanceOnDay(r, least)
		st.day += r.Success.Mean
		st.calls += r.Calls.Mean * float64(r.Calls.N)
	} else {
		st.harm += math.Max(patient-r.Success.Mean, 0)
	}
	st.slow += r.P99.Mean
	// The series are not needed, and those of a hundred candidates are large.
	st.results[n] = sim.Result{
		Name: r.Name, Policy: r.Policy, Measures: r.Measures, NeverRecovers: r.NeverRecovers, Versus: r.Versus,
	}
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
