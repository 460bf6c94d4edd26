package simulate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/sim"
)

// View is a report with its scenario, for rendering.
type View struct {
	Scenario    sim.Scenario
	Contestants []sim.Contestant
	Report      *sim.Report
	Command     string // command line that reproduces the report
}

// name returns the name of a policy.
func (v *View) name(n int) string { return v.Report.Results[n].Name }

// target returns the name of the service whose load is counted.
func (v *View) target() string {
	if n := len(v.Scenario.Services); n > 0 {
		return v.Scenario.Services[n-1].Name
	}
	return "the shared resource"
}

// bucket returns the length of a bucket, for display.
func (v *View) bucket() string { return textfmt.ShortDuration(seconds(v.Report.Bucket)) }

// length returns the length of a run.
func (v *View) length() time.Duration { return v.Scenario.Duration + v.Scenario.Drain }

// shown returns the number of buckets to draw: at least until the last activity of any policy, and
// until the last end of a failure within the run.
func (v *View) shown() int {
	last := 0
	for i := range v.Report.Results {
		s := &v.Report.Results[i].Series
		for _, row := range [][]float64{s.Offered, s.Load, s.Goodput} {
			for n := len(row) - 1; n >= last; n-- {
				if row[n] > 0 {
					last = n + 1
					break
				}
			}
		}
	}
	for _, f := range v.Scenario.Failures { // show their ends
		if f.Until > 0 && f.Until <= v.length() {
			last = max(last, int(math.Ceil(f.Until.Seconds()/v.Report.Bucket)))
		}
	}
	return max(last, 1)
}

// time returns the start of a bucket.
func (v *View) time(bucket int) time.Duration { return seconds(float64(bucket) * v.Report.Bucket) }

// rows returns the measures that are not 0 for at least one policy. Success is always included, and
// recovery if there is something to recover from.
func (v *View) rows() (list []*measure) {
	for i := range measures {
		m := &measures[i]
		if m.name == "recovery" && !v.recoverable() {
			continue
		}
		isNotZero := func(r sim.Result) bool { return m.get(&r.Measures).Mean != 0 }
		if m.name == "success" || m.name == "recovery" || slices.ContainsFunc(v.Report.Results, isNotZero) {
			list = append(list, m)
		}
	}
	return list
}

// noRecovery says why the table has no row for the recovery; "" if it has one.
func (v *View) noRecovery() string {
	switch {
	case v.recoverable():
		return ""
	case len(v.Scenario.Failures) == 0:
		return "There is no row for the recovery, because nothing fails in this scenario."
	default:
		return "There is no row for the recovery, because the last failure ends after the last call has started, or never."
	}
}

// settles reports whether there are failures that end, and all of these end while calls still
// start. Failures that never end, such as a usual share of errors, do not matter. If all calls
// arrive at once, see [View.crowd], it does not matter when the failures end.
func (v *View) settles() bool {
	end := time.Duration(0)
	for _, f := range v.Scenario.Failures {
		end = max(end, f.Until)
	}
	return end > 0 && (end < v.Scenario.Duration || v.crowd())
}

// until returns when a failure ends: at the end of the run if it has no end of its own.
func (v *View) until(f sim.Failure) time.Duration {
	if f.Until == 0 {
		return v.length()
	}
	return f.Until
}

// recoverable reports whether there is something to recover from: failures that end, or a crowd of
// calls.
func (v *View) recoverable() bool { return v.settles() || v.crowd() }

// crowd reports whether all calls arrive at once: as a herd, or from writers or members.
func (v *View) crowd() bool {
	return contended(v.Scenario) || v.Scenario.Clients.Arrivals == sim.Herd
}

// get returns a measure of a policy.
func (v *View) get(m *measure, n int) sim.Estimate { return m.get(&v.Report.Results[n].Measures) }

// formatted returns the mean of a measure of a policy, for display.
func (v *View) formatted(m *measure, n int) string { return m.unit.value(v.get(m, n).Mean) }

// cell is the value of a measure for a policy.
type cell struct {
	Value string // the mean
	Half  string // half of the interval; "" if there is none
	Note  string // number of seeds, if not all
	Best  bool
}

func (v *View) cell(m *measure, n int) cell {
	e := v.get(m, n)
	if e.N == 0 {
		if m.name == "recovery" {
			return cell{Value: "never"}
		}
		return cell{Value: "-"}
	}
	c := cell{Value: m.unit.value(e.Mean), Best: v.best(m) == n}
	if e.N > 1 {
		c.Half = m.unit.interval(e)
	}
	if e.N < v.Report.Seeds {
		c.Note = fraction(e.N, v.Report.Seeds)
	}
	return c
}

// seeds describes the seeds of the report.
func (v *View) seeds() string {
	if v.Report.Seeds == 1 {
		return fmt.Sprintf("One run of each policy, with seed %d.", v.Report.Seed)
	}
	return fmt.Sprintf("Means over %d seeds from %d on; ± is half of the 95%% interval.", v.Report.Seeds, v.Report.Seed)
}

// contended reports whether a scenario is about conflicting writers.
func contended(s sim.Scenario) bool { return s.Writers != nil || s.Group != nil }
