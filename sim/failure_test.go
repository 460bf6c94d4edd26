package sim

import (
	"math"
	"testing"
)

func TestFailuresThatOverlapAreIndependent(t *testing.T) {
	t.Parallel()
	failure := func(k FailureKind, share, factor float64) Failure {
		return Failure{Kind: k, Share: share, Factor: factor}
	}
	for _, tt := range []struct {
		name     string
		failures []Failure
		share    float64 // of the calls that succeed
	}{
		{"half of the calls twice is three quarters in errors", []Failure{failure(Errors, 0.5, 0), failure(Errors, 0.5, 0)}, 0.25},
		{"half of the calls twice is three quarters in a black hole", []Failure{failure(BlackHole, 0.5, 0), failure(BlackHole, 0.5, 0)}, 0.25},
		{"one that strikes all leaves nothing to the other", []Failure{failure(Errors, 0.5, 0), failure(Errors, 1, 0)}, 0},
		{"those that do not overlap do not add up", []Failure{
			{Kind: Errors, Share: 0.5, Until: 30 * second}, {Kind: Errors, Share: 0.5, From: 30 * second},
		}, 0.5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := runOne(t, steadyLoad(100, Service{Latency: constant(10 * ms)}, tt.failures...), "fixed(0s) attempt-timeout=1s attempts=1")
			if got := r.Success.Mean; math.Abs(got-tt.share) > 0.02 {
				t.Errorf("%.3f of the calls succeed, want %.3f", got, tt.share)
			}
		})
	}
}

// A tenth of the calls is a hundred times as slow, and all are twice as slow: a
// call that both affect takes 200 times as long, and no other call does.
func TestSlownessThatOverlapsIsMultipliedForEachCall(t *testing.T) {
	t.Parallel()
	s := steadyLoad(100, Service{Latency: constant(10 * ms)},
		Failure{Kind: Slow, Share: 0.1, Factor: 100}, Failure{Kind: Slow, Share: 1, Factor: 2})
	shares := map[int]float64{}
	for _, p := range runOne(t, s, "fixed(0s)").CDF {
		shares[int(math.Round(p.Seconds*100))] = p.Share
	}
	if len(shares) != 2 || math.Abs(shares[2]-0.9) > 0.02 || shares[200] != 1 {
		t.Errorf("the calls take, in hundredths of a second, %v; want nine tenths 2 and the others 200", shares)
	}
	both := steadyLoad(100, Service{Latency: constant(10 * ms)},
		Failure{Kind: Slow, Share: 0.5, Factor: 10}, Failure{Kind: Slow, Share: 0.5, Factor: 10})
	if r := runOne(t, both, "fixed(0s)"); math.Abs(quantileOf(r.CDF, 0.5)-0.1) > 0.002 || math.Abs(quantileOf(r.CDF, 0.99)-1) > 0.01 || math.Abs(quantileOf(r.CDF, 0.2)-0.01) > 0.001 {
		t.Errorf("half of the calls twice: %v, %v and %v s at a fifth, half and 99 %%; want 0.01, 0.1 and 1", quantileOf(r.CDF, 0.2), quantileOf(r.CDF, 0.5), quantileOf(r.CDF, 0.99))
	}
}

// quantileOf returns the time within which this share of the calls ends.
func quantileOf(cdf []Point, share float64) float64 {
	for _, p := range cdf {
		if p.Share >= share {
			return p.Seconds
		}
	}
	return math.NaN()
}

func TestOfSeveralCapacitiesTheSmallestCounts(t *testing.T) {
	t.Parallel()
	v := Service{Workers: 10, Queue: 1, Latency: constant(100 * ms)}
	least := runOne(t, steadyLoad(100, v, Failure{Kind: Capacity, Share: 0.2}), "fixed(0s)")
	both := runOne(t, steadyLoad(100, v, Failure{Kind: Capacity, Share: 0.5}, Failure{Kind: Capacity, Share: 0.2}), "fixed(0s)")
	if both.Success != least.Success {
		t.Errorf("half and a fifth of the workers: %v succeed, want as many as with a fifth: %v", both.Success, least.Success)
	}
}

func TestWorkNeverTakesLongerThanTimeItself(t *testing.T) {
	t.Parallel()
	all := make([]Failure, 100)
	for i := range all {
		all[i] = Failure{Kind: Slow, Share: 1, Factor: 1e6}
	}
	if r := runOne(t, steadyLoad(10, Service{Latency: constant(ms)}, all...), "fixed(0s) attempts=1"); r.Unfinished.Mean != 1 {
		t.Errorf("work that is slow beyond any number: %+v unfinished, want all", r.Unfinished)
	}
	if got := (&faults{slow: []slowFailure{{0, 1, 1e6}, {1, 1, math.Inf(1)}}}).slowdown(1); math.IsInf(got, 0) {
		t.Errorf("stretch = %v, which is 0 times something that is no number", got)
	}
}
