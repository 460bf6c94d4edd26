//go:build !race

package advise_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"
)

var (
	lawServices = flag.Int("law", 0, "number of random services on which the advice is compared with naive policies; 0 means two small ones")
	lawSeed     = flag.Uint64("law-seed", 1, "seed of the random services")
	lawFirst    = flag.Int("law-first", 0, "number of services to skip")
	lawRandom   = flag.Int("law-random", 2000, "random policies that try to reach a goal that the advice calls unreachable")
)

// lawCase is a random service with a goal.
type lawCase struct {
	service  advise.Service
	goal     advise.Goal
	deadline time.Duration
}

// String returns the flags of the command advise.
func (c lawCase) String() string {
	s, g := c.service, c.goal
	text := fmt.Sprintf("--rate %.4g --capacity %.4g --latency %v --errors %.4g --black-holes %.4g --outage %v --deadline %v", s.Rate, s.Capacity, s.Latency, s.Errors, s.BlackHole, s.Outage, c.deadline)
	if s.Shape != "" {
		text += " --shape " + string(s.Shape)
	}
	if s.Queue > 0 {
		text += fmt.Sprintf(" --queue %d", s.Queue)
	}
	if s.Shedding {
		text += " --shedding"
	}
	for _, f := range []struct {
		name string
		set  bool
		v    any
	}{{"success", g.Success > 0, g.Success}, {"through", g.Through > 0, g.Through}, {"p99", g.P99 > 0, g.P99}, {"recovery", g.Recovery > 0, g.Recovery}, {"load", g.Amplification > 0, g.Amplification}} {
		if f.set {
			text += fmt.Sprintf(" --%s %v", f.name, f.v)
		}
	}
	return text
}

// drawLawCase draws a service with at most this rate of calls, and a goal.
func drawLawCase(random *rand.Rand, maxRate float64) lawCase {
	between := func(lo, hi float64) float64 { return lo * math.Pow(hi/lo, random.Float64()) }
	rounded := func(v float64) float64 {
		p := math.Pow(10, math.Floor(math.Log10(v))-1)
		return math.Round(v/p) * p
	}
	duration := func(lo, hi time.Duration) time.Duration {
		return time.Duration(rounded(between(lo.Seconds(), hi.Seconds())) * float64(time.Second)).Round(time.Millisecond)
	}
	pick := func(list ...float64) float64 { return list[random.IntN(len(list))] }
	s := advise.Service{
		Rate: rounded(between(0.5, maxRate)), Latency: duration(5*time.Millisecond, 3*time.Second),
		Errors: 0.01, BlackHole: 0.001, Outage: duration(5*time.Second, 90*time.Second),
	}
	s.Capacity = s.Rate * rounded(between(1.05, 4))
	if random.IntN(3) > 0 {
		s.Errors = rounded(between(0.001, 0.2))
	}
	if random.IntN(3) == 0 {
		s.BlackHole = rounded(between(0.0001, 0.05))
	}
	if random.IntN(2) == 0 {
		s.Shape = []sim.Distribution{sim.Constant, sim.Lognormal}[random.IntN(2)]
	}
	if random.IntN(4) == 0 {
		s.Queue = 1 + random.IntN(50)
	}
	s.Shedding = random.IntN(4) == 0
	c := lawCase{service: s, deadline: time.Duration(pick(5, 10, 30, 30, 60, 120)) * time.Second}
	for c.deadline < 2*s.Latency {
		c.deadline *= 2
	}
	g := &c.goal
	success := func() { g.Success = pick(0.5, 0.9, 0.95, 0.99, 0.99, 0.995, 0.999, 0.9999) }
	switch random.IntN(8) {
	case 0, 1, 2:
		success()
	case 3, 4:
		g.Through = pick(0.1, 0.3, 0.5, 0.9, 0.99)
	case 5:
		g.P99 = time.Duration(rounded(between(2, 30) * float64(s.Latency))).Round(time.Millisecond)
	case 6:
		success()
		g.Recovery = time.Duration(pick(2, 5, 10, 30)) * time.Second
	case 7:
		success()
		g.Amplification = pick(1.05, 1.1, 1.2, 1.5, 2)
	}
	return c
}

// naivePolicies are the policies that people use without a search.
func naivePolicies(deadline time.Duration) (list []sim.Contestant) {
	texts := []string{"fixed(0s) attempts=1", "fixed(1s) attempts=3", "exponential(1s) jitter=full attempts=5"}
	for name := range retry.Presets {
		texts = append(texts, name)
	}
	for _, text := range texts {
		p := retry.Must(text).Policy()
		if p.TotalTimeout == 0 || p.TotalTimeout > deadline {
			p.TotalTimeout = deadline
		}
		list = append(list, sim.Contestant{Name: text, Policy: p})
	}
	return list
}

// parse parses a policy. A [retry.Runner] refuses hedges, so retry.Must would too.
func parse(text string) retry.Policy {
	p, err := retry.Parse(text)
	if err != nil {
		panic(err)
	}
	return p
}

// randomPolicy draws a policy that ends at the deadline.
func randomPolicy(random *rand.Rand, n int, deadline time.Duration, hedges bool) sim.Contestant {
	between := func(lo, hi time.Duration) time.Duration {
		return time.Duration(float64(lo) * math.Pow(float64(hi)/float64(lo), random.Float64())).Round(time.Millisecond)
	}
	one := func(list ...string) string { return list[random.IntN(len(list))] }
	base := between(2*time.Millisecond, deadline)
	text := fmt.Sprintf(one("fixed(%v)", "exponential(%v)", "exponential(%v)"), base) + one("", " jitter=full", " jitter=equal", " jitter=20%")
	if random.IntN(8) == 0 {
		text = fmt.Sprintf("decorrelated(%v..%v)", base, max(base+time.Millisecond, min(3*base, deadline)))
	}
	text += fmt.Sprintf(" attempts=%d total-timeout=%v", int(math.Round(math.Pow(20, random.Float64()))), deadline)
	if random.IntN(3) > 0 {
		text += fmt.Sprintf(" attempt-timeout=%v", between(2*time.Millisecond, deadline))
	}
	text += one("", "", " budget=refund(1,0.1,10)", " budget=refund(1,0.3,10)", " budget=ratio(0.2)")
	if hedges && random.IntN(2) == 0 {
		text += one(" hedge=p95/5%", " hedge=p90/10%", " hedge=p75/25%", " hedge=p50/50%")
	}
	c := sim.Contestant{Name: fmt.Sprintf("%d: %s", n, text), Policy: parse(text)}
	if random.IntN(6) == 0 {
		c.Name, c.Breaker = c.Name+" and a breaker", new(breaker.Config)
	}
	return c
}

// goalCases returns the ordinary day and the cases that have a goal.
func goalCases(cases []advise.Case) []advise.Case {
	return slices.DeleteFunc(slices.Clone(cases), func(c advise.Case) bool { return c.Goal == (advise.Goal{}) && c.Scenario.Name != "ordinary" })
}

// measureAll simulates contestants in the scenarios of the cases, for ten times as long
// as the cases say, with seeds that the advice does not use. times is a factor for the
// number of runs.
func measureAll(t *testing.T, cases []advise.Case, list []sim.Contestant, times int) (results [][]sim.Result) {
	t.Helper()
	for _, c := range cases {
		s, seeds := c.Scenario, 24
		if s.Name == "ordinary" {
			s.Duration *= 10
			s.Bucket *= 10
			seeds = 4
		}
		report, err := sim.Run(t.Context(), s, list, sim.Options{Seed: 1 << 40, Seeds: times * seeds})
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, report.Results)
	}
	return results
}

// shortage says how far a result is from a part of a goal: in points of success, or as a
// share of a time or load. It is positive if the part is missed.
type shortage struct {
	scenario, measure string
	by, half          float64 // half is that of the 95 % interval
}

// shortages returns how far a result is from the parts of the goal of a case.
func shortages(c advise.Case, r *sim.Result) (list []shortage) {
	add := func(measure string, by, half float64) {
		list = append(list, shortage{c.Scenario.Name, measure, by, half})
	}
	g := c.Goal
	if g.Success > 0 {
		add("success", g.Success-r.Success.Mean, r.Success.Half)
	}
	if g.Through > 0 {
		add("through", g.Through-r.OutageSuccess.Mean, r.OutageSuccess.Half)
	}
	if g.P99 > 0 {
		if r.Success.Mean < 0.99 {
			add("success", 0.99-r.Success.Mean, r.Success.Half)
		}
		add("p99", r.P99.Mean/g.P99.Seconds()-1, r.P99.Half/g.P99.Seconds())
	}
	if g.Amplification > 0 {
		add("amplification", r.Amplification.Mean/g.Amplification-1, r.Amplification.Half/g.Amplification)
	}
	if g.Recovery > 0 {
		if r.NeverRecovers > 0 {
			add("never", 10*r.NeverRecovers, 0)
		}
		add("recovery", r.Recovery.Mean/g.Recovery.Seconds()-1, r.Recovery.Half/g.Recovery.Seconds())
	}
	return list
}

// shortfall returns how far the results of contestant i are from the goals: the largest
// shortage. sure is the same with the worse ends of the intervals.
func shortfall(cases []advise.Case, results [][]sim.Result, i int) (worst shortage, sure float64) {
	worst.by, sure = math.Inf(-1), math.Inf(-1)
	for n, c := range cases {
		for _, s := range shortages(c, &results[n][i]) {
			if sure = max(sure, s.by+s.half); s.by > worst.by {
				worst = s
			}
		}
	}
	return worst, sure
}

// tolerance is by how much the advice may be further from a goal that it misses by this much than a naive
// policy: a fiftieth, half a point, or the half of the interval that the advice states for the value.
func tolerance(a *advise.Advice, own shortage) float64 {
	stated := 0.0
	for _, m := range a.Misses {
		if m.Scenario == own.scenario && m.Goal == own.measure {
			stated = m.Got.Half
			if m.Goal != "success" && m.Goal != "through" {
				stated /= m.Want
			}
		}
	}
	return max(0.005, own.by/50, stated)
}

// saysNearer reports whether the advice says that another policy is nearer to the part of
// the goal that the advice misses most, and, within the interval that it states, as near as
// the naive policy with this shortfall.
func saysNearer(a *advise.Advice, cases []advise.Case, own, naive shortage) bool {
	return slices.ContainsFunc(a.Losses, func(l advise.Loss) bool {
		if l.Scenario != own.scenario || l.Measure != own.measure {
			return false
		}
		n := slices.IndexFunc(cases, func(c advise.Case) bool { return c.Scenario.Name == l.Scenario })
		g, most, least := cases[n].Goal, l.Other.Mean+l.Other.Half, l.Other.Mean-l.Other.Half
		by := map[string]float64{
			"success": max(g.Success, 0.99*float64(min(1, g.P99))) - most, "through": g.Through - most, "p99": least/g.P99.Seconds() - 1,
			"amplification": least/g.Amplification - 1, "recovery": least/g.Recovery.Seconds() - 1, "never": 10 * least,
		}
		return by[l.Measure] <= naive.by+tolerance(a, own)
	})
}

// differs reports whether the measure in which the first contestant misses its goal most differs from
// that of the second one, seed by seed, by more than chance explains.
func differs(cases []advise.Case, results [][]sim.Result, own shortage) bool {
	n := slices.IndexFunc(cases, func(c advise.Case) bool { return c.Scenario.Name == own.scenario })
	v := results[n][1].Versus
	by, known := map[string]sim.Estimate{
		"success": v.Success, "through": v.OutageSuccess, "p99": v.P99, "amplification": v.Amplification, "recovery": v.Recovery,
	}[own.measure]
	return !known || math.Abs(by.Mean) > by.Half
}

// TestTheAdviceIsNeverWorseThanANaivePolicy draws services, and compares the advice with
// naive policies in simulations that are ten times as long, and of other seeds. Goals
// that the advice calls unreachable are tried by random policies.
func TestTheAdviceIsNeverWorseThanANaivePolicy(t *testing.T) {
	t.Parallel()
	number, policies, maxRate := *lawServices, *lawRandom, 3.0
	if number == 0 {
		number, policies, maxRate = 2, 50, 1.5
	}
	random := rand.New(rand.NewPCG(*lawSeed, 43))
	counts := map[string]int{}
	for n := range *lawFirst + number {
		c := drawLawCase(random, maxRate)
		if n < *lawFirst {
			continue
		}
		for _, finding := range checkLaw(t, n, c, policies) {
			kind, _, _ := strings.Cut(finding, ":")
			counts[kind]++
			t.Errorf("service %d: %s\n  %s", n, c, finding)
		}
		counts["services"]++
	}
	t.Logf("counts: %v", counts)
}

// checkLaw returns everything that is wrong with the advice for a service.
func checkLaw(t *testing.T, n int, c lawCase, policies int) (findings []string) {
	t.Helper()
	add := func(format string, args ...any) { findings = append(findings, fmt.Sprintf(format, args...)) }
	cases := c.service.Cases(c.goal)
	a, err := advise.For(t.Context(), advise.Request{Cases: cases, Deadline: c.deadline}, advise.Options{Seed: uint64(n)})
	if err != nil {
		t.Fatal(err)
	}
	advised := sim.Contestant{Name: "advised", Policy: parse(a.Policy)}
	if a.Breaker {
		advised.Breaker = new(breaker.Config)
	}
	list := append([]sim.Contestant{advised}, naivePolicies(c.deadline)...)
	cases = goalCases(cases)
	results := measureAll(t, cases, list, 1)
	own, _ := shortfall(cases, results, 0)
	day := results[0][0].Success
	t.Logf("service %d: %s\n  %s breaker=%v reached=%v day=%.5f short=%.4f (%s %s) %.1fM events losses=%+v misses=%+v", n, c, a.Policy, a.Breaker, a.Reached, day.Mean,
		own.by, own.scenario, own.measure, float64(a.Events)/1e6, a.Losses, a.Misses)
	daySaid := slices.ContainsFunc(a.Losses, func(l advise.Loss) bool { return l.Scenario == "ordinary" && l.Measure == "success" })
	for i := 1; i < len(list); i++ {
		other, sure := shortfall(cases, results, i)
		gain := results[0][i].Success.Mean - day.Mean
		if sure <= 0 && own.by > 0.002 && !a.Reached {
			add("false unreachable: %s reaches the goal (%.4f), the advice does not (%.4f)", list[i].Name, other.by, own.by)
			continue
		}
		if own.by > 0 && other.by < own.by-tolerance(a, own) {
			// With more runs, the difference may be gone.
			more := measureAll(t, cases, []sim.Contestant{advised, list[i]}, 10)
			exact, _ := shortfall(cases, more, 0)
			other, _ = shortfall(cases, more, 1)
			gain = more[0][1].Success.Mean - more[0][0].Success.Mean
			text := fmt.Sprintf("%s is nearer to the goal (%.4f, %s %s) than the advice (%.4f, %s %s), and its ordinary day is %+.4f",
				list[i].Name, other.by, other.scenario, other.measure, exact.by, exact.scenario, exact.measure, gain)
			switch {
			case other.by >= exact.by-tolerance(a, exact), !differs(cases, more, exact):
				t.Logf("service %d: noise: %s", n, text)
			case gain > -0.005:
				add("goal: %s", text)
			case !saysNearer(a, cases, exact, other):
				add("goal, and the first line does not say so: %s", text)
			default:
				t.Logf("service %d: said: %s", n, text)
			}
		}
		if gain > 0.01 && !daySaid {
			add("day: %s has %.4f on an ordinary day, the advice %.4f, and does not say so", list[i].Name, results[0][i].Success.Mean, day.Mean)
		} else if gain > 0.002 {
			t.Logf("service %d: day: %s has %+.4f on an ordinary day, said: %v, its shortfall is %.4f", n, list[i].Name, gain, daySaid, other.by)
		}
	}
	for _, o := range a.Outcomes {
		i := slices.IndexFunc(cases, func(c advise.Case) bool { return c.Scenario.Name == o.Scenario })
		if i < 0 {
			continue
		}
		r := &results[i][0]
		for _, p := range []struct {
			what      string
			got, want sim.Estimate
		}{{"success", o.Success, r.Success}, {"through", o.OutageSuccess, r.OutageSuccess}} {
			if math.Abs(p.got.Mean-p.want.Mean) > 3.29/1.96*(p.got.Half+p.want.Half)+0.002 {
				add("promise: %s: %s %.5f ± %.5f, simulated %.5f ± %.5f", o.Scenario, p.what, p.got.Mean, p.got.Half, p.want.Mean, p.want.Half)
			}
		}
	}
	if a.Reached && own.by > 0.002 {
		add("promise: it says that the goal is reached, and it misses it by %.4f", own.by)
	}
	if !a.Reached {
		text, found := refute(t, cases, c, policies, day.Mean-0.005)
		if found {
			add("false unreachable: %s", text)
		} else {
			t.Logf("service %d: shortfall %.4f; %s", n, own.by, text)
		}
	}
	return findings
}

// refute looks for a random policy that reaches the goal. If none does, it returns the one
// that is the nearest to the goal of those that have this share of success on an ordinary
// day.
func refute(t *testing.T, cases []advise.Case, c lawCase, policies int, day float64) (string, bool) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, uint64(policies)))
	var list []sim.Contestant
	for n := range policies {
		list = append(list, randomPolicy(random, n, c.deadline, c.goal.P99 > 0))
	}
	// One run each leaves out the policies that miss the goal clearly. The next runs are
	// for the nearest ones.
	for _, round := range []struct{ seeds, keep int }{{1, 200}, {4, 20}} {
		results := make([][]sim.Result, len(cases))
		for n, one := range cases {
			report, err := sim.Run(t.Context(), one.Scenario, list, sim.Options{Seed: 1 << 41, Seeds: round.seeds})
			if err != nil {
				t.Fatal(err)
			}
			results[n] = report.Results
		}
		list = nearestPolicies(list, round.keep, func(i int) float64 {
			short, _ := shortfall(cases, results, i)
			if results[0][i].Success.Mean < day-0.01 && short.by > 0.02/float64(round.seeds) {
				return math.Inf(1)
			}
			return short.by
		})
	}
	results := measureAll(t, cases, list, 1)
	best, text := math.Inf(1), "no random policy has this ordinary day"
	for i := range list {
		short, sure := shortfall(cases, results, i)
		is := fmt.Sprintf("(%.4f, %s %s), its ordinary day has %.4f", short.by, short.scenario, short.measure, results[0][i].Success.Mean)
		if sure <= 0 {
			return fmt.Sprintf("%s reaches the goal %s", list[i].Name, is), true
		}
		if short.by < best && results[0][i].Success.Mean >= day {
			best, text = short.by, fmt.Sprintf("the nearest random policy is %s %s", list[i].Name, is)
		}
	}
	return text, false
}

// nearestPolicies returns at most n policies, those with the smallest distances.
func nearestPolicies(list []sim.Contestant, n int, distance func(i int) float64) (out []sim.Contestant) {
	order := make([]int, len(list))
	distances := make([]float64, len(list))
	for i := range list {
		order[i], distances[i] = i, distance(i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(distances[a], distances[b]) })
	for _, i := range order[:min(n, len(order))] {
		out = append(out, list[i])
	}
	return out
}
