//go:build !race

package advise_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"
)

var services = flag.Int("services", 2, "number of services whose advice is compared with longer simulations")

// TestThePromisesHold compares what the advice promises with simulations of
// other seeds that are ten times as long.
func TestThePromisesHold(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(25, 0))
	for n := range *services {
		s := drawService(random)
		goal := advise.Goal{Success: 0.99, Through: 0.5, Amplification: 1.5, Recovery: 30 * time.Second}
		cases := s.Cases(goal)
		a, err := advise.For(t.Context(), advise.Request{Cases: cases}, advise.Options{Seed: uint64(n), Seeds: 8})
		if err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("service %d, %+v, %s", n, s, a.Policy)
		for i, o := range a.Outcomes {
			long := simulateLong(t, cases[i].Scenario, a)
			wantOverlap(t, what, o.Scenario+": success", o.Success, long.Success)
			wantOverlap(t, what, o.Scenario+": success of the calls during the outage", o.OutageSuccess, long.OutageSuccess)
			wantOverlap(t, what, o.Scenario+": recovery", o.Recovery, long.Recovery)
			if math.Abs(o.NeverRecovers-long.NeverRecovers) > 0.5 {
				t.Errorf("%s, %s: never recovers in %v of the runs, and in %v of the long simulation", what, o.Scenario, o.NeverRecovers, long.NeverRecovers)
			}
		}
	}
}

// drawService draws a service. Many have a capacity of less than ten workers.
func drawService(random *rand.Rand) advise.Service {
	between := func(lo, hi float64) float64 { return lo * math.Pow(hi/lo, random.Float64()) }
	rate := between(2, 50)
	return advise.Service{
		Rate: rate, Capacity: rate * between(1.1, 4), Latency: time.Duration(between(20, 1000)) * time.Millisecond,
		Errors: between(0.001, 0.1), Outage: time.Duration(between(5, 60)) * time.Second,
	}
}

// simulateLong simulates the advised policy for ten times as long as the advice
// did: in one scenario of ten times the duration if nothing ends in it, else in
// ten times as many runs.
func simulateLong(t *testing.T, s sim.Scenario, a *advise.Advice) sim.Result {
	t.Helper()
	seeds := 10 * a.Seeds
	if s.Name == "ordinary" {
		s.Duration *= 10
		seeds = a.Seeds
	}
	return simulate(t, s, a, seeds)
}

func simulate(t *testing.T, s sim.Scenario, a *advise.Advice, seeds int) sim.Result {
	t.Helper()
	c := sim.Contestant{Name: "advised", Policy: parse(a.Policy)}
	if a.Breaker {
		c.Breaker = new(breaker.Config)
	}
	report, err := sim.Run(context.Background(), s, []sim.Contestant{c}, sim.Options{Seed: 1 << 40, Seeds: seeds})
	if err != nil {
		t.Fatal(err)
	}
	return report.Results[0]
}

// wantOverlap checks that the intervals of a promise and of a long simulation
// overlap. With hundreds of comparisons, some intervals of 95 % miss each other
// by chance; these are intervals of 99.9 %.
func wantOverlap(t *testing.T, what, measure string, promise, long sim.Estimate) {
	t.Helper()
	if promise.N == 0 && long.N == 0 {
		return
	}
	const wider = 3.29 / 1.96
	if math.Abs(promise.Mean-long.Mean) > wider*(promise.Half+long.Half)+1e-9 {
		t.Errorf("%s\n%s: promised %.5g ± %.2g, simulated %.5g ± %.2g", what, measure, promise.Mean, promise.Half, long.Mean, long.Half)
	}
}

func TestTheStatedCapacityIsSimulated(t *testing.T) {
	t.Parallel()
	s := advise.Service{Rate: 20, Capacity: 22, Latency: 50 * time.Millisecond, Outage: 10 * time.Second}
	cases := s.Cases(advise.Goal{Success: 0.99, Amplification: 1.1, Recovery: 5 * time.Second})
	a := advice(t, advise.Request{Cases: cases}, quickOptions)
	for _, o := range a.Outcomes {
		if o.Capacity != 22 {
			t.Errorf("%s: simulated a capacity of %v, want 22", o.Scenario, o.Capacity)
		}
	}
	// Three times the capacity arrives, and one attempt is made: the service
	// answers as many calls as its capacity says.
	scenario := cases[0].Scenario
	scenario.Clients.Rate, scenario.Duration, scenario.Drain, scenario.Failures = 66, 10*time.Minute, 0, nil
	r := simulate(t, scenario, &advise.Advice{Policy: "fixed(0s) attempts=1"}, 3)
	if math.Abs(r.Goodput.Mean-22) > 0.5 {
		t.Errorf("with 66 calls per second the service answers %v per second, want 22", r.Goodput.Mean)
	}
}

func TestThroughCountsTheCallsOfTheOutage(t *testing.T) {
	t.Parallel()
	s := advise.Service{Rate: 10, Latency: 500 * time.Millisecond, Outage: 10 * time.Second}
	cases := s.Cases(advise.Goal{Through: 0.99})
	a, err := advise.For(t.Context(), advise.Request{Cases: cases, Deadline: 2 * time.Minute}, advise.Options{Seeds: 5})
	if err != nil {
		t.Fatal(err)
	}
	// In this scenario all calls begin during the outage.
	scenario := cases[1].Scenario
	scenario.Duration, scenario.Drain = 10*time.Second, 5*time.Minute
	for i := range scenario.Failures {
		if f := &scenario.Failures[i]; f.Kind == sim.Outage {
			f.From, f.Until = 0, 10*time.Second
		}
	}
	r := simulate(t, scenario, a, 50)
	if r.OutageSuccess != r.Success {
		t.Errorf("all calls begin during the outage, but %v of them and %v of all succeed", r.OutageSuccess, r.Success)
	}
	if a.Reached && r.Success.Mean+r.Success.Half < 0.99 {
		t.Errorf("%s: the goal of 99 %% is reached, it says; %v of the calls that begin during the outage succeed", a.Policy, r.Success)
	}
}

func TestCallsThatAreNeverAnswered(t *testing.T) {
	t.Parallel()
	s := advise.Service{Rate: 10, Capacity: 20, Latency: 100 * time.Millisecond, Errors: 0.001, BlackHole: 0.02, Outage: 10 * time.Second}
	a := advice(t, advise.Request{Cases: s.Cases(advise.Goal{Success: 0.99})}, quickOptions)
	p := retry.Must(a.Policy).Policy()
	if !a.Reached || p.AttemptTimeout == 0 || p.AttemptTimeout >= p.TotalTimeout {
		t.Errorf("2 %% of the calls are never answered: advised %s, reached %v", a.Policy, a.Reached)
	}
}
