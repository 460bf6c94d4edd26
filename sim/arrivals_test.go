package sim

import (
	"math"
	"testing"
)

// arrivingCalls returns the number of calls that arrive in each bucket of a
// second, the mean of the seeds.
func arrivingCalls(t *testing.T, c Clients, seeds int) []float64 {
	t.Helper()
	s := steadyLoad(c.Rate, Service{Latency: constant(ms)})
	s.Duration, s.Bucket, s.Clients = 60*second, second, c
	return run(t, s, seeds, contestant(t, "fixed(0s) attempts=1"))[0].Series.Offered
}

func TestLoadChangesOverTime(t *testing.T) {
	calls := arrivingCalls(t, Clients{Count: 10, Arrivals: Open, Rate: 50, Load: []Load{
		{At: 10 * second, Factor: 4}, {At: 20 * second, Factor: 1}, {At: 30 * second, Factor: 3, Ramp: 20 * second}, {At: 50 * second, Factor: 0},
	}}, 20)
	for _, span := range []struct {
		name     string
		from, to int
		want     float64 // calls per second
	}{
		{"before the spike", 0, 10, 50}, {"spike", 10, 20, 200}, {"after the spike", 20, 30, 50},
		{"first half of the ramp", 30, 40, 75}, {"second half of the ramp", 40, 50, 125}, {"no load", 50, 60, 0},
	} {
		sum := 0.0
		for _, n := range calls[span.from:span.to] {
			sum += n
		}
		// The number of calls of all seeds has a standard deviation of its root.
		total := 20 * span.want * float64(span.to-span.from)
		if math.Abs(20*sum-total) > 5*math.Sqrt(total) {
			t.Errorf("%s: %v calls per second, want %v", span.name, sum/float64(span.to-span.from), span.want)
		}
	}
}

func TestBatches(t *testing.T) {
	calls := arrivingCalls(t, Clients{Count: 10, Arrivals: Open, Rate: 50, Batch: 5}, 1)
	sum := 0.0
	for i, n := range calls {
		if math.Mod(n, 5) != 0 {
			t.Errorf("%v calls arrive in second %d, want a multiple of the batch", n, i)
		}
		sum += n
	}
	if math.Abs(sum-3000) > 5*5*math.Sqrt(600) {
		t.Errorf("%v calls arrive in a minute, want 3000", sum)
	}
}

func TestFastErrors(t *testing.T) {
	s := steadyLoad(100, Service{Workers: 50, Latency: constant(100 * ms)}, Failure{Kind: Reject, Share: 0.3})
	r := run(t, s, 5, contestant(t, "fixed(0s) attempts=1"))[0]
	if math.Abs(r.Success.Mean-0.7) > 0.02 || math.Abs(r.GiveUp.Mean-0.001) > 1e-6 {
		t.Errorf("%v succeed, and a failure takes %v s; want 0.7, and 0.001 s without work", r.Success.Mean, r.GiveUp.Mean)
	}
}
