//go:build !race

package sim

import (
	"math"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

// clamped is the decorrelated schedule as it was published: delays above the
// cap become the cap. Our schedule limits the range of the delays instead.
func clamped(s retry.State, _ retry.Outcome, u uint64) time.Duration {
	const base, most = 5 * ms, 2000 * ms
	prev := max(s.Prev, base)
	return min(most, base+time.Duration(unit(u)*float64(3*prev-base)))
}

func TestAnchorOptimisticWriters(t *testing.T) {
	type row struct{ time, calls float64 }
	published := Contestant{Name: "decorrelated", Policy: policy(t, "fixed(5ms..2s) attempts=unlimited"), Delay: clamped, chained: true}
	tests := []struct {
		c    Contestant
		want map[int]row
	}{
		{contestant(t, "fixed(0s) attempts=unlimited"), map[int]row{10: {376, 50.6}, 50: {1143, 691}, 100: {2024, 2420}}},
		{contestant(t, "exponential(10ms..2s) attempts=unlimited"), map[int]row{10: {3376, 50.7}, 50: {36354, 624}, 100: {63477, 1856}}},
		{contestant(t, "exponential(10ms..2s) jitter=equal attempts=unlimited"), map[int]row{10: {727, 42.4}, 50: {4220, 347}, 100: {6574, 813}}},
		{contestant(t, "exponential(10ms..2s) jitter=full attempts=unlimited"), map[int]row{10: {458, 38.9}, 50: {2901, 333}, 100: {4864, 796}}},
		// Our schedule spreads late delays below the cap.
		{contestant(t, "decorrelated(5ms..2s) attempts=unlimited"), map[int]row{10: {436, 37.7}, 50: {2192, 375}, 100: {4234, 1002}}},
		{published, map[int]row{10: {438, 37.7}, 50: {2228, 376}, 100: {4567, 1003}}},
	}
	tolerance := 0.01 * float64(size(12, 3))
	for _, tt := range tests {
		for _, n := range []int{10, 50, 100}[:size(2, 3)] {
			s := Scenario{Name: "writers", Duration: time.Hour, Bucket: second, Writers: &Writers{Count: n, Hop: 10 * ms, Sigma: 2 * ms}}
			r := run(t, s, size(600, 50_000)/n, tt.c)[0]
			what := tt.c.Name + " " + name("N", n)
			wantNear(t, what+": time", r.Last, tt.want[n].time/1000, tolerance)
			wantNear(t, what+": calls", r.CallsPerClient, tt.want[n].calls/float64(n), 0.03)
			if r.Success.Mean != 1 {
				t.Errorf("%s: %v of the writers got through", what, r.Success.Mean)
			}
		}
	}
}

func TestAnchorMM1(t *testing.T) {
	s := Scenario{
		Name: "mm1", Duration: time.Duration(size(2_000, 40_000)) * second, Bucket: 10 * second, Drain: time.Minute,
		Clients:  Clients{Count: 1000, Arrivals: Open, Rate: 8},
		Services: []Service{queueing(1, 100*ms)},
	}
	r := run(t, s, 20, contestant(t, "fixed(0s)"))[0]
	wantNear(t, "p50", r.P50, 0.3466, 0.04)
	wantNear(t, "p99", r.P99, 2.303, 0.06)
	if math.Abs(r.P50.Mean-0.3466) > 2*r.P50.Half || math.Abs(r.P99.Mean-2.303) > 2*r.P99.Half {
		t.Errorf("p50 %+v or p99 %+v is outside of twice its interval", r.P50, r.P99)
	}
}

// overload is a service of 300 calls per second whose workers stop for ten
// seconds.
func overload(rate float64) Scenario {
	return Scenario{
		Name: "metastable", Duration: 300 * second, Bucket: second, Drain: 100 * second,
		Clients:  Clients{Count: 1000, Arrivals: Open, Rate: rate},
		Services: []Service{queueing(30, 100*ms)},
		Failures: []Failure{{Kind: Capacity, From: 20 * second, Until: 30 * second, Share: 0}},
	}
}

func TestAnchorMetastableFailure(t *testing.T) {
	c := contestant(t, "fixed(0s) attempts=2 attempt-timeout=1s")
	seeds := size(1, 20)
	r := run(t, overload(280), seeds, c)[0]
	if r.NeverRecovers != 1 {
		t.Errorf("280/s: recovers in %v of the runs", 1-r.NeverRecovers)
	}
	load, good := Estimate{N: 1}, 0.0
	for i := 100; i < 300; i++ {
		load.Mean += r.Series.Load[i] / 200
		good += r.Series.Goodput[i] / 200
	}
	wantNear(t, "load at 280/s", load, 560, 0.01)
	if good > 0.5 {
		t.Errorf("280/s: goodput %v/s long after the outage, want none", good)
	}
	for rate, want := range map[float64]float64{140: 0, 145: 0, 156: 1, 165: 1} {
		s := overload(rate)
		s.Duration = time.Duration(size(500, 900)) * second
		if r := run(t, s, seeds, c)[0]; r.NeverRecovers != want {
			t.Errorf("%v/s: share of runs that never recover = %v, want %v", rate, r.NeverRecovers, want)
		}
	}
}

func TestAnchorLayers(t *testing.T) {
	s, ok := Preset("layers")
	if !ok {
		t.Fatal("there is no scenario layers")
	}
	c := contestant(t, "fixed(10ms) attempts=4")
	r := run(t, s, 2, c)[0]
	wantNear(t, "amplification", r.Amplification, 64, 1e-9)
	// 64 calls of 1 ms each, and 63 waits: 3 in 16 at the bottom, 3 in 4, 3.
	wantNear(t, "time of a call that fails", r.GiveUp, 0.064+0.63, 0.01)

	budget := contestant(t, "fixed(10ms) attempts=4 budget=refund(1,0.1,10)")
	budget.Prepaid = true
	r = run(t, s, 2, budget)[0]
	wantNear(t, "amplification with a budget of 10 %", r.Amplification, 1.331, 0.03)
}

func TestAnchorTokenBucket(t *testing.T) {
	bucket := contestant(t, "fixed(10ms) attempts=4 budget=refund(1,0.1,5)")
	bucket.Prepaid = true
	tests := []struct {
		c             Contestant
		success, load [3]float64
	}{
		{contestant(t, "fixed(10ms)"), [3]float64{0.9, 0.8, 0.5}, [3]float64{1, 1, 1}},
		{contestant(t, "fixed(10ms) attempts=4"), [3]float64{0.9999, 0.9984, 0.9375}, [3]float64{1.111, 1.248, 1.875}},
		{bucket, [3]float64{0.992, 0.909, 0.575}, [3]float64{1.1, 1.1, 1.1}},
	}
	for _, tt := range tests {
		for i, share := range []float64{0.1, 0.2, 0.5} {
			s := Scenario{
				Name: "errors", Duration: 10 * second, Drain: 10 * second, Bucket: second,
				Clients:  Clients{Count: 100, Arrivals: Open, Rate: 1000},
				Services: []Service{{Name: "service", Latency: Latency{Distribution: Exponential, Mean: 10 * ms}}},
				Failures: []Failure{{Kind: Errors, Share: share}},
			}
			r := run(t, s, size(4, 100), tt.c)[0]
			what := tt.c.Name + " at " + name("%", int(100*share))
			wantNear(t, what+": success", r.Success, tt.success[i], 0.01)
			wantNear(t, what+": load", r.Amplification, tt.load[i], 0.05)
		}
	}
}

func TestAnchorRateLimit(t *testing.T) {
	s, ok := Preset("ratelimit")
	if !ok {
		t.Fatal("there is no scenario ratelimit")
	}
	seeds := size(1, 10)
	r := run(t, s, seeds, contestant(t, "exponential(1s..30s) jitter=full attempts=unlimited"))[0]
	wantNear(t, "full jitter: time", r.Last, 221, 0.05)
	wantNear(t, "full jitter: calls", r.CallsPerClient, 10.7, 0.05)

	published := s.clone()
	published.Services[0].Limit.RetryAfter = SayBacklog
	published.Services[0].Limit.foreseen = s.Clients.Count
	literal := contestant(t, "exponential(1s..10m) jitter=full attempts=unlimited")
	literal.literal = true
	r = run(t, published, seeds, literal)[0]
	wantNear(t, "published, with Retry-After: time", r.Last, 212, 0.03)
	wantNear(t, "published, with Retry-After: calls", r.CallsPerClient, 2.2, 0.05)

	// Our clients add up to a fifth to Retry-After, and a real service only
	// knows the calls that it has refused. So the run takes a little longer,
	// with more calls.
	ours := s.clone()
	ours.Services[0].Limit.RetryAfter = SayBacklog
	r = run(t, ours, seeds, contestant(t, "exponential(1s..30s) jitter=full attempts=unlimited server-wait=10m"))[0]
	wantNear(t, "our runner with Retry-After: time", r.Last, 228, 0.05)
	wantNear(t, "our runner with Retry-After: calls", r.CallsPerClient, 2.63, 0.05)
}

// slowTail is a service whose answers take thirty times as long in one of a
// hundred cases, at the given share of its capacity.
func slowTail(t *testing.T, use float64) Scenario {
	t.Helper()
	s, ok := Preset("hedge")
	if !ok {
		t.Fatal("there is no scenario hedge")
	}
	mean := 0.99*0.01 + 0.01*0.3
	s.Clients.Rate = use * float64(s.Services[0].Workers) / mean
	s.Duration = time.Duration(size(6, 300)) * second
	return s
}

func TestAnchorHedging(t *testing.T) {
	alone := contestant(t, "fixed(0s)")
	always := contestant(t, "fixed(0s) hedge=16ms/100%") // 16 ms is the 95th percentile of an idle service
	budget := contestant(t, "fixed(0s) hedge=16ms/5%")
	for _, use := range []float64{0.3, 0.5, 0.7} {
		r := run(t, slowTail(t, use), size(1, 3), alone, always)
		if add := r[1].Amplification.Mean - 1; add < 0.02 || add > 0.08 {
			t.Errorf("at %v: hedges add a load of %v, want a few per cent", use, add)
		}
		if cut := r[0].P999.Mean / r[1].P999.Mean; cut < 8 {
			t.Errorf("at %v: p99.9 goes from %.3f s to %.3f s, want an order of magnitude", use, r[0].P999.Mean, r[1].P999.Mean)
		}
	}
	for _, use := range []float64{0.85, 0.9} {
		s := slowTail(t, use)
		s.Drain = 0
		r := run(t, s, size(1, 3), alone, always, budget)
		if lost := 1 - r[1].Goodput.Mean/r[0].Goodput.Mean; lost < 0.1 || r[1].P50.Mean < 0.2 {
			t.Errorf("at %v: hedges without a budget cost %v of the goodput, and p50 is %.3f s: no collapse", use, lost, r[1].P50.Mean)
		}
		if r[2].Success.Mean < 0.999*r[0].Success.Mean || r[2].P50.Mean > 0.02 {
			t.Errorf("at %v: hedges with a budget: %v succeed, and p50 is %.3f s, want no collapse", use, r[2].Success.Mean, r[2].P50.Mean)
		}
	}
}

// TestAnchorHerd checks that jitter of ±20 % lowers the peak of a herd: 27.7
// times in buckets of 10 ms, 3.8 times in buckets of 100 ms.
func TestAnchorHerd(t *testing.T) {
	for bucket, want := range map[time.Duration]float64{10 * ms: 27.7, 100 * ms: 3.8} {
		s, _ := Preset("herd")
		s.Bucket = bucket
		s.Clients.Start = 9 * ms // and 1 ms to be refused: a peak without jitter is within one bucket
		r := run(t, s, size(20, 200), contestant(t, "exponential(1s..32s) attempts=2"), contestant(t, "exponential(1s..32s) attempts=2 jitter=20%"))
		cut := Estimate{Mean: r[0].PeakRetries.Mean / r[1].PeakRetries.Mean, N: 1}
		wantNear(t, "the peak is cut, bucket "+bucket.String(), cut, want, 0.06)
	}
}
