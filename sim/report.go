package sim

import "math"

// report returns the results of all contestants.
func (t *tournament) report() *Report {
	r := &Report{
		Scenario: t.plan.scenario.Name, Seed: t.options.Seed, Seeds: t.options.Seeds,
		Bucket: t.plan.scenario.bucket().Seconds(), Events: t.events,
	}
	for i := range t.contestants {
		r.Results = append(r.Results, t.result(i))
	}
	return r
}

func (t *tournament) result(i int) Result {
	c, s := &t.contestants[i], &t.sums[i]
	r := Result{
		Name: c.Name, Policy: c.Policy.String(), Measures: summarise(t.runs[i]), NeverRecovers: lost(t.runs[i]),
		GaveUp: s.gaveUp(), Series: s.series(t.options.Seeds), CDF: s.latency.cdf(),
	}
	if t.plan.prioritised {
		r.ByPriority = s.byPriority()
	}
	if i > 0 {
		d := summarise(differences(t.runs[i], t.runs[0]))
		r.Versus = &d
	}
	return r
}

// lost returns the share of the runs that never recovered.
func lost(runs []Measures[float64]) float64 {
	n := 0
	for _, m := range runs {
		if math.IsNaN(m.Recovery) {
			n++
		}
	}
	return ratio(n, len(runs))
}
