package advise

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/sim"
)

// Goal says what a policy must reach in a scenario. A zero field sets no goal.
type Goal struct {
	Success       float64       `json:"success,omitempty"`       // least share of the calls that succeed
	Through       float64       `json:"through,omitempty"`       // least share of the calls that begin during an outage and succeed, during it or after it
	P99           time.Duration `json:"p99_ns,omitempty"`        // highest p99 latency; at least 99 % of the calls must succeed, too
	Amplification float64       `json:"amplification,omitempty"` // most attempts per call
	Recovery      time.Duration `json:"recovery_ns,omitempty"`   // longest time to recover after the last failure has ended
}

// Validate reports everything that is wrong with the goal, each problem with its
// field's name.
func (g Goal) Validate() error {
	var p validate.Problems
	p.Check(g.Success >= 0 && g.Success < 1, "success: %v is not a share below 1", g.Success)
	p.Check(g.Through >= 0 && g.Through < 1, "through: %v is not a share below 1", g.Through)
	p.Check(g.P99 >= 0, "p99: %v is negative", g.P99)
	p.Check(g.Amplification == 0 || g.Amplification >= 1, "amplification: %v is below 1, but every call makes at least one attempt", g.Amplification)
	p.Check(!math.IsInf(g.Amplification, 1), "amplification: infinite: leave it out for no limit")
	p.Check(g.Recovery >= 0, "recovery: %v is negative", g.Recovery)
	return errors.Join(p...)
}

// aim is one part of a goal.
type aim struct {
	name  string
	want  float64
	least bool                           // want is a lower bound, not an upper one
	of    func(*sim.Result) sim.Estimate // returns the measure
}

// aims returns the parts of the goal that are set.
func (g Goal) aims() []aim {
	all := []aim{
		{"success", g.Success, true, func(r *sim.Result) sim.Estimate { return r.Success }},
		{"through", g.Through, true, func(r *sim.Result) sim.Estimate { return r.OutageSuccess }},
		{"p99", g.P99.Seconds(), false, func(r *sim.Result) sim.Estimate { return r.P99 }},
		{"amplification", g.Amplification, false, func(r *sim.Result) sim.Estimate { return r.Amplification }},
		{"recovery", g.Recovery.Seconds(), false, func(r *sim.Result) sim.Estimate { return r.Recovery }},
	}
	return slices.DeleteFunc(all, func(a aim) bool { return a.want == 0 })
}

// Miss is a part of the goal that the policy does not reach.
type Miss struct {
	Goal     string       `json:"goal"` // success, through, p99, amplification or recovery
	Scenario string       `json:"scenario"`
	Want     float64      `json:"want"` // times in seconds
	Got      sim.Estimate `json:"got"`
	Never    float64      `json:"never,omitempty"`   // recovery: share of the seeds in which the service did not recover
	Success  float64      `json:"success,omitempty"` // p99: share of the calls that succeed, if that is below 99 %
	Best     float64      `json:"best"`              // the best value of any candidate, even if it misses other parts
}

// check returns the parts of the goal that a result misses, and its distance
// from the goal: 0 if it misses nothing. It compares the worse end of the 95 %
// interval with the goal. With fewer than fewSeeds runs the interval says little, and
// the mean counts. The distance is a sum over the parts. The distance of
// a part is the logarithm of the factor by which the value is too large; for
// success, the value is the share of calls that fail. The interval counts little in it:
// that of a few runs is mostly noise.
//
// The margin is the smallest logarithm of the factor by which a value is better than
// its goal. A margin below least is a miss.
func (g Goal) check(scenario string, r *sim.Result, least float64) (misses []Miss, distance, margin float64) {
	margin = math.Inf(1)
	for _, a := range g.aims() {
		got, mean, d := a.distance(r)
		margin = math.Min(margin, -d)
		if d += least; d > 1e-9 {
			m := Miss{Goal: a.name, Scenario: scenario, Want: a.want, Got: got}
			if a.name == "recovery" {
				m.Never = r.NeverRecovers
			}
			if a.name == "p99" && r.Success.Mean < 0.99 {
				m.Success = r.Success.Mean
			}
			misses, distance = append(misses, m), distance+part(mean, d)
		}
	}
	return misses, distance, margin
}

// part returns what a missed part of a goal adds to the distance, of the distances of its mean and of
// the worse end of its interval.
func part(mean, worse float64) float64 { return math.Max(mean, 0) + 0.02 + 0.1*worse }

// distanceOnDay returns how much the success on an ordinary day adds to the distance.
func (g Goal) distanceOnDay(r *sim.Result, least float64) (distance float64) {
	for _, a := range g.aims() {
		_, mean, d := a.distance(r)
		switch d += least; {
		case d <= 1e-9:
		case a.name == "success":
			distance += part(mean, d)
		case a.name == "p99" && r.Success.Mean < 0.99:
			distance += part(tooManyFail(r), tooManyFail(r)) - part(0, 0)
		}
	}
	return distance
}

// distance returns the measure, and the logarithm of the factor by which its mean and the
// worse end of its interval are too large.
func (a aim) distance(r *sim.Result) (got sim.Estimate, mean, worse float64) {
	got = a.of(r)
	if got.N < fewSeeds {
		got.Half = 0
	}
	if a.least {
		calls := r.Calls
		if a.name == "through" {
			calls = r.OutageCalls
		}
		got.Half = math.Max(got.Half, resolution(got.Mean, calls))
	}
	distance := func(half float64) float64 {
		d := math.Log((got.Mean + half) / a.want)
		switch {
		case a.least:
			return math.Log((1 - got.Mean + half) / (1 - a.want))
		case a.name == "p99" && r.Success.Mean < 0.99: // more than 1 % of the calls fail, so that 99 % can't succeed in time
			return math.Max(d, 0) + tooManyFail(r)
		case a.name == "recovery" && r.NeverRecovers > 0:
			return math.Max(d, 0) + 5*r.NeverRecovers
		case got.N == 0: // no call has succeeded
			return 5
		}
		return d
	}
	return got, distance(0), distance(got.Half)
}

// tooManyFail is the part of the distance from a p99 that says that more than 1 % of the
// calls fail: half the logarithm of the factor, because the ordinary day counts, too.
func tooManyFail(r *sim.Result) float64 { return math.Max(math.Log((1-r.Success.Mean)/0.01)/2, 0) }

// rank returns a number that is smaller if the measure is better: a time, a load, or a
// share of calls or runs that fail.
func (a aim) rank(r *sim.Result) float64 {
	switch got := a.of(r); {
	case got.N == 0:
		return math.Inf(1)
	case a.least:
		return 1 - got.Mean
	case a.name == "recovery": // of the runs that recover
		return got.Mean + 1e6*r.NeverRecovers
	default:
		return got.Mean
	}
}

var (
	success = aim{name: "success", least: true, of: func(r *sim.Result) sim.Estimate { return r.Success }}
	never   = aim{name: "never", of: func(r *sim.Result) sim.Estimate { return sim.Estimate{Mean: r.NeverRecovers, N: r.Calls.N} }}
	// also has the measures that a part of a goal depends on beside its own.
	also = map[string][]aim{"p99": {success}, "recovery": {never}}
)

// Uncertain reports whether the mean of the measure reaches the goal, so that only
// the interval misses it.
func (m *Miss) Uncertain() bool {
	switch {
	case m.Got.N == 0 || m.Never > 0 || m.Success > 0:
		return false
	case m.Goal == "success" || m.Goal == "through":
		return m.Got.Mean >= m.Want
	default:
		return m.Got.Mean <= m.Want
	}
}

// fewSeeds is the least number of runs whose interval counts.
const fewSeeds = 4

// resolution returns the uncertainty of a share p of the calls that is due to
// the number of calls. If none of n calls failed, it is 3/n (the rule of three).
func resolution(p float64, calls sim.Estimate) float64 {
	n := math.Max(calls.Mean*float64(calls.N), 1)
	return math.Max(1.96*math.Sqrt(p*(1-p)/n), 3/n)
}
