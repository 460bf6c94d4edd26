package simulate

import (
	"fmt"
	"math"

	"github.com/tideover/tideover/sim"
)

// even is how close the shares of success are that count as the same.
const even = 0.001

// best returns which policy is the best by a measure, -1 if that can't be said: it
// must differ from each other one by more than chance.
func (v *View) best(m *measure) int {
	if m.better == 0 || len(v.Report.Results) < 2 || m.given && !v.sameSuccess() {
		return -1
	}
	top := 0
	for n := range v.Report.Results {
		if float64(m.better)*(v.get(m, n).Mean-v.get(m, top).Mean) > 0 {
			top = n
		}
	}
	if !v.apart(m, top) {
		return -1
	}
	return top
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

// sameSuccess reports whether all policies get as many calls through. One that
// gives up early has quick successes only because it has few.
func (v *View) sameSuccess() bool {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range v.Report.Results {
		s := v.Report.Results[i].Success.Mean
		low, high = min(low, s), max(high, s)
	}
	return high-low <= even
}

// differs reports whether the interval of the difference between two policies,
// taken seed by seed, excludes zero.
//
// The report has that of each policy and the first. For two others, it can't be
// wider than both intervals together, neither those of the measures nor those of
// the differences to the first. So it may be that a difference is missed, and
// none is claimed that is not there.
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

// versus returns the difference to the first policy, which is none for itself.
func (v *View) versus(m *measure, n int) sim.Estimate {
	if d := v.Report.Results[n].Versus; d != nil {
		return m.get(d)
	}
	return sim.Estimate{N: v.Report.Seeds}
}

func fraction(n, of int) string { return fmt.Sprintf("%d of %d", n, of) }
