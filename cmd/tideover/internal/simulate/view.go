package simulate

import (
	"fmt"
	"math"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/sim"
)

// View is a report with what it is about, to be shown.
type View struct {
	Scenario    sim.Scenario
	Contestants []sim.Contestant
	Report      *sim.Report
	Command     string // that makes it again
}

// bucket is what peaks and series are counted in.
func (v *View) bucket() string { return textfmt.ShortDuration(seconds(v.Report.Bucket)) }

// length is how long a run is.
func (v *View) length() time.Duration { return v.Scenario.Duration + v.Scenario.Drain }

// shown is how many buckets are drawn: until the last in which something happened
// with any policy, and all failures that end had ended.
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
	for _, f := range v.Scenario.Failures { // whose end is worth seeing
		if f.Until > 0 && f.Until <= v.length() {
			last = max(last, int(math.Ceil(f.Until.Seconds()/v.Report.Bucket)))
		}
	}
	return max(last, 1)
}

// time returns when a bucket begins.
func (v *View) time(bucket int) time.Duration { return seconds(float64(bucket) * v.Report.Bucket) }

// rows are the measures that say something: some policy has a value. That nothing
// succeeds is worth saying, and so is that nobody needed time to recover.
func (v *View) rows() (list []*measure) {
	for i := range measures {
		m := &measures[i]
		if m.name == "recovery" && !v.recoverable() {
			continue
		}
		for n := range v.Report.Results {
			if e := v.get(m, n); e.Mean != 0 || m.name == "success" || m.name == "recovery" {
				list = append(list, m)
				break
			}
		}
	}
	return list
}

// recoverable reports whether there is something to recover from: failures that
// end, or a crowd to serve.
func (v *View) recoverable() bool { return v.settles() || v.crowd() }

// crowd reports whether all come at once.
func (v *View) crowd() bool {
	return contended(v.Scenario) || v.Scenario.Clients.Arrivals == sim.Herd
}

func (v *View) get(m *measure, n int) sim.Estimate { return m.get(&v.Report.Results[n].Measures) }

// cell is what a measure says of a policy.
type cell struct {
	value string // the mean
	half  string // half of the interval; empty if there is none
	note  string // of how many seeds, if not of all
	best  bool
}

func (v *View) cell(m *measure, n int) cell {
	e := v.get(m, n)
	if e.N == 0 {
		if m.name == "recovery" {
			return cell{value: "never"}
		}
		return cell{value: "-"}
	}
	c := cell{value: m.unit.value(e.Mean), best: v.best(m) == n}
	if e.N > 1 {
		c.half = m.unit.interval(e)
	}
	if e.N < v.Report.Seeds {
		c.note = fraction(e.N, v.Report.Seeds)
	}
	return c
}

// seeds says what the numbers are made of.
func (v *View) seeds() string {
	if v.Report.Seeds == 1 {
		return fmt.Sprintf("One run of each policy, with seed %d.", v.Report.Seed)
	}
	return fmt.Sprintf("Means over %d seeds from %d on; ± is half of the 95%% interval.", v.Report.Seeds, v.Report.Seed)
}

// contended reports whether a scenario is about writers that collide.
func contended(s sim.Scenario) bool { return s.Writers != nil || s.Group != nil }
