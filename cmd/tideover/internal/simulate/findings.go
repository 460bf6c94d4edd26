package simulate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tideover/tideover/sim"
)

// mostFindings limits the number of comparisons in [View.Findings].
const mostFindings = 4

// Findings returns the conclusions of the report as sentences, the most important first: whether the
// service recovers, what the policies cost, and then how many calls succeed. A comparison is included
// only if it is significant.
func (v *View) Findings() []string {
	var list []string
	for _, s := range []string{
		recoveryFinding(v), attemptsFinding(v),
		v.compared("peak retries", "At the peak, %[3]s makes %[4]s retries in %[5]s, and %[1]s %[2]s."),
		successFinding(v),
		v.compared("latency p99", "99%% of the calls take %[2]s or less with %[1]s, and %[4]s with %[3]s."),
	} {
		if s != "" && len(list) < mostFindings {
			list = append(list, s)
		}
	}
	switch {
	case len(list) == 0 && len(v.Report.Results) == 1:
		list = append(list, fmt.Sprintf("%s of the calls succeed.", v.formatted(byName("success"), 0)))
	case v.Report.Seeds < 2 && len(v.Report.Results) > 1:
		list = append(list, "One seed can't show whether a difference is chance; use more with --seeds.")
	case len(list) == 0 && len(v.Report.Results) > 1:
		list = append(list, fmt.Sprintf("No difference between the policies is larger than chance in %d seeds.", v.Report.Seeds))
	}
	return list
}

// recoveryFinding says with which policies the service recovers.
func recoveryFinding(v *View) string {
	if !v.recoverable() {
		return ""
	}
	var never, some, always []string
	for i := range v.Report.Results {
		r := &v.Report.Results[i]
		switch lost := v.neverRecover(i); lost {
		case 0:
			always = append(always, fmt.Sprintf("%s (after %s on average)", r.Name, second.value(r.Recovery.Mean)))
		case v.Report.Seeds:
			never = append(never, r.Name)
		default:
			some = append(some, fmt.Sprintf("%s (%s do)", r.Name, fraction(v.Report.Seeds-lost, v.Report.Seeds)))
		}
	}
	if len(never)+len(some) == 0 {
		return ""
	}
	seeds := fraction(v.Report.Seeds, v.Report.Seeds) + " seeds"
	var parts []string
	switch len(never) {
	case 0:
	case 1:
		parts = append(parts, fmt.Sprintf("%s never recovers, in %s", never[0], seeds))
	default:
		parts = append(parts, fmt.Sprintf("%s never recover, in %s", and(never), seeds))
	}
	if len(some) > 0 {
		parts = append(parts, "not all seeds recover with "+and(some))
	}
	if len(always) > 0 {
		parts = append(parts, "all seeds recover with "+and(always))
	}
	return strings.Join(parts, "; ") + "."
}

// successFinding says with which policy the most calls succeed.
func successFinding(v *View) string {
	m := byName("success")
	most, least := v.extremes(m)
	switch {
	case v.get(m, most).Mean == 0:
		return "No call succeeds with any policy."
	case v.best(m) < 0 && v.apart(m, least):
		return fmt.Sprintf("Fewest calls succeed with %s: %s, compared to %s with %s.", v.name(least), v.formatted(m, least), v.formatted(m, most), v.name(most))
	}
	return v.compared(m.name, "Most calls succeed with %[1]s: %[2]s, compared to %[4]s with %[3]s.")
}

// attemptsFinding says which policy makes the fewest attempts.
func attemptsFinding(v *View) string {
	const name = "attempts/call"
	if n := v.best(byName(name)); n >= 0 && v.sameSuccess() && v.get(byName("success"), n).Mean > 0 {
		return v.compared(name, "About equally many calls succeed with each policy, "+
			"and %[1]s makes the fewest attempts: %[2]s per call, compared to %[4]s with %[3]s.")
	}
	return v.compared(name, "%[1]s makes the fewest attempts per call: %[2]s, compared to %[4]s with %[3]s.")
}

// compared returns a sentence about the best and the worst policy by a measure; "" if the difference
// is not significant. The arguments of the format are the best policy, its value, the worst policy,
// its value, and the bucket.
func (v *View) compared(name, format string) string {
	m := byName(name)
	best := v.best(m)
	if best < 0 {
		return ""
	}
	_, worst := v.extremes(m)
	return fmt.Sprintf(format, v.name(best), v.formatted(m, best), v.name(worst), v.formatted(m, worst), v.bucket())
}

// byName returns the measure with this name, which must exist.
func byName(name string) *measure {
	return &measures[slices.IndexFunc(measures, func(m measure) bool { return m.name == name })]
}

// hasWaiting reports whether any call has waited in a queue.
func hasWaiting(r *sim.Report) bool {
	waits := func(r sim.Result) bool { return highest(r.Series.Waiting, 0, len(r.Series.Waiting)) > 0 }
	return slices.ContainsFunc(r.Results, waits)
}

// even is the largest difference between shares of success that count as equal.
const even = 0.001

// best returns the index of the best policy by a measure; -1 if it does not differ from each other
// policy by more than chance, or if the policies can't be compared.
func (v *View) best(m *measure) int {
	if m.better == 0 || len(v.Report.Results) < 2 || m.given && !v.sameSuccess() {
		return -1
	}
	top, _ := v.extremes(m)
	if !v.apart(m, top) {
		return -1
	}
	return top
}

// extremes returns the indexes of the policies with the best and the worst mean, whether the
// difference is significant or not.
func (v *View) extremes(m *measure) (best, worst int) {
	for n := range v.Report.Results {
		x := float64(m.better) * v.get(m, n).Mean
		if x > float64(m.better)*v.get(m, best).Mean {
			best = n
		}
		if x < float64(m.better)*v.get(m, worst).Mean {
			worst = n
		}
	}
	return best, worst
}

// apart reports whether policy n differs from each other policy by more than chance.
func (v *View) apart(m *measure, n int) bool {
	for other := range v.Report.Results {
		if other != n && !v.differs(m, n, other) {
			return false
		}
	}
	return len(v.Report.Results) > 1
}

// sameSuccess reports whether equally many calls succeed with all policies. Otherwise latencies can't
// be compared: with a policy that gives up early, only fast calls succeed.
func (v *View) sameSuccess() bool {
	success := byName("success")
	most, least := v.extremes(success)
	return v.get(success, most).Mean-v.get(success, least).Mean <= even
}

// differs reports whether the interval of the difference between two policies, seed by seed,
// excludes zero.
//
// The report has only the differences to the first policy. The interval of the difference between two
// others can't be wider than the sum of their intervals, and not wider than the sum of the intervals
// of their differences to the first. differs uses the smaller sum. So it may miss a difference, but
// it reports none that does not exist.
func (v *View) differs(m *measure, a, b int) bool {
	x, y := v.get(m, a), v.get(m, b)
	if x.N != v.Report.Seeds || y.N != v.Report.Seeds || x.N < 2 {
		return false
	}
	gap := math.Abs(x.Mean - y.Mean)
	half := x.Half + y.Half
	dx, dy := v.versus(m, a), v.versus(m, b)
	return gap > min(half, dx.Half+dy.Half)
}

// versus returns the difference to the first policy; for the first one itself it is 0.
func (v *View) versus(m *measure, n int) sim.Estimate {
	if d := v.Report.Results[n].Versus; d != nil {
		return m.get(d)
	}
	return sim.Estimate{N: v.Report.Seeds}
}

func fraction(n, of int) string { return fmt.Sprintf("%d of %d", n, of) }
