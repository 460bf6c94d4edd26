package simulate

import (
	"math"
	"strconv"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/sim"
)

// unit is the format of a measure.
type unit uint8

const (
	count  unit = iota // 1234
	ratio              // 1.23
	share              // 98.7 %
	second             // 1.23s
)

// measure is a row of the table.
type measure struct {
	name   string // title of the row, without the bucket of a peak
	about  string
	unit   unit
	peak   bool // the value depends on the length of a bucket
	better int  // 1 if more is better, -1 if less is better, 0 if neither
	given  bool // the measure is about successful calls only, so policies are comparable only if equally many calls succeed
	get    func(m *sim.Measures[sim.Estimate]) sim.Estimate
}

type all = sim.Measures[sim.Estimate]

// measures are the rows of the table, the most important first.
var measures = []measure{
	{name: "success", unit: share, better: 1, about: "share of the calls that succeeded", get: func(m *all) sim.Estimate { return m.Success }},
	{name: "outage success", unit: share, better: 1, about: "share of the calls that began during an outage and succeeded, during it or after it", get: func(m *all) sim.Estimate { return m.OutageSuccess }},
	{name: "goodput/s", unit: ratio, better: 1, about: "calls that succeeded, per second of the run, without the drain", get: func(m *all) sim.Estimate { return m.Goodput }},
	{name: "recovery", unit: second, better: -1, about: "from the end of the last failure until 95 % of the calls succeed again", get: func(m *all) sim.Estimate { return m.Recovery }},
	{name: "attempts/call", unit: ratio, better: -1, about: "attempts that reached the last service, per call", get: func(m *all) sim.Estimate { return m.Amplification }},
	{name: "hedges/call", unit: ratio, about: "attempts beside a slow one, per call", get: func(m *all) sim.Estimate { return m.Hedges }},
	{name: "peak", unit: count, peak: true, better: -1, about: "most attempts that reached the last service in a bucket", get: func(m *all) sim.Estimate { return m.Peak }},
	{name: "peak/mean", unit: ratio, peak: true, about: "that peak over the mean of the buckets from the first attempt to the last", get: func(m *all) sim.Estimate { return m.PeakRatio }},
	{name: "peak retries", unit: count, peak: true, better: -1, about: "most retries in a bucket", get: func(m *all) sim.Estimate { return m.PeakRetries }},
	{name: "wasted work", unit: share, better: -1, about: "share of the work whose caller had gone", get: func(m *all) sim.Estimate { return m.Wasted }},
	{name: "latency p50", unit: second, better: -1, given: true, about: "half of the calls that succeeded took no longer", get: func(m *all) sim.Estimate { return m.P50 }},
	{name: "latency p99", unit: second, better: -1, given: true, about: "99 % of them took no longer", get: func(m *all) sim.Estimate { return m.P99 }},
	{name: "latency p99.9", unit: second, better: -1, given: true, about: "99.9 % of them took no longer", get: func(m *all) sim.Estimate { return m.P999 }},
	{name: "unfinished", unit: share, about: "share of the calls that had not ended with the run", get: func(m *all) sim.Estimate { return m.Unfinished }},
	{name: "time to fail", unit: second, about: "mean time of the calls that failed", get: func(m *all) sim.Estimate { return m.GiveUp }},
	{name: "fairness", unit: ratio, better: 1, about: "of the clients' shares of success, by Jain's index; 1 is fair", get: func(m *all) sim.Estimate { return m.Fairness }},
	{name: "last call ends", unit: second, better: -1, given: true, about: "after the start", get: func(m *all) sim.Estimate { return m.Last }},
}

// title returns the name of the row, with the bucket of a peak.
func (m *measure) title(v *View) string {
	if m.peak {
		return m.name + " in " + v.bucket()
	}
	return m.name
}

// meaning returns the explanation of the row.
func (m *measure) meaning(v *View) string {
	switch {
	case m.name != "recovery" || !v.crowd():
		return m.about
	case len(v.Scenario.Failures) == 0:
		return "from the start until 95 % of all calls have succeeded"
	}
	return "from the end of the last failure until 95 % of all calls have succeeded"
}

// value formats a number.
func (u unit) value(f float64) string {
	switch u {
	case share:
		return decimals(100*f) + "%"
	case second:
		return textfmt.ShortDuration(seconds(f))
	case ratio:
		return decimals(f)
	default:
		return grouped(int64(math.Round(f)))
	}
}

// interval formats half of the interval of an estimate, with as many decimals as value uses for its
// mean.
func (u unit) interval(e sim.Estimate) string {
	switch u {
	case share:
		return strconv.FormatFloat(100*e.Half, 'f', places(100*e.Mean), 64)
	case second:
		return textfmt.ShortDuration(coarse(seconds(e.Half)))
	case ratio:
		return strconv.FormatFloat(e.Half, 'f', places(e.Mean), 64)
	default:
		return grouped(int64(math.Ceil(e.Half)))
	}
}

// coarse rounds a duration to two digits.
func coarse(d time.Duration) time.Duration {
	g := time.Duration(1)
	for d >= 100*g {
		g *= 10
	}
	return d.Round(g)
}

// seconds converts a number to a duration, limited to a valid range.
func seconds(f float64) time.Duration {
	return time.Duration(min(max(f*float64(time.Second), 0), math.MaxInt64/2))
}

// decimals formats a number with a useful number of decimals.
func decimals(f float64) string {
	if a := math.Abs(f); a >= 1000 {
		return grouped(int64(math.Round(f)))
	} else if a > 0 && a < 0.00095 {
		return strconv.FormatFloat(f, 'g', 2, 64)
	}
	if f > 99 && f < 100 { // round down, so that it does not become 100
		f = math.Floor(f*1000) / 1000
	}
	return strconv.FormatFloat(f, 'f', places(f), 64)
}

// places returns how many decimals to show. There are enough that 99.99 does not become 100, and that
// a small number does not become 0.
func places(f float64) int {
	switch a := math.Abs(f); {
	case a == 0 || a >= 100:
		return 0
	case a >= 99.5:
		return 3
	case a >= 10:
		return 1
	case a >= 0.095:
		return 2
	default:
		return 4
	}
}

// grouped formats a whole number with thousands separators.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
