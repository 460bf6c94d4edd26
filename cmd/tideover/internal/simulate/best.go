package simulate

import (
	"fmt"
	"math"

	"github.com/tideover/tideover/sim"
)

// even is the tolerance within which shares of success count as equal.
const even = 0.001

// best returns the index of the best policy by a measure; -1 if it is not significant: the policy
// must differ from each other one by more than chance.
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

// extremes returns the best and the worst mean, significant or not.
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

// apart reports whether a policy differs from each other one by more than chance.
func (v *View) apart(m *measure, n int) bool {
	for other := range v.Report.Results {
		if other != n && !v.differs(m, n, other) {
			return false
		}
	}
	return len(v.Report.Results) > 1
}

// sameSuccess reports whether equally many calls succeed with all policies. A policy that gives up
// early has fast successes only because it has few.
func (v *View) sameSuccess() bool {
	success := byName("success")
	most, least := v.extremes(success)
	return v.get(success, most).Mean-v.get(success, least).Mean <= even
}

// differs reports whether the interval of the difference between two policies, seed by seed,
// excludes zero.
//
// The report has the difference of each policy to the first. For two others, the interval can't be
// wider than both intervals together, either those of the measures or those of the differences to
// the first. So a difference may be missed, but none is claimed that does not exist.
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
