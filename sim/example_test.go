package sim_test

import (
	"context"
	"fmt"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
)

// A service at 93 % of its capacity stops for ten seconds. With retries alone it
// never recovers; with a budget and a breaker it does.
func ExampleRun() {
	scenario, _ := sim.Preset("metastable")
	eager, _ := retry.Parse("exponential(50ms..20s) jitter=full attempts=3 attempt-timeout=1s")
	careful, _ := retry.Parse("default attempt-timeout=1s")

	report, err := sim.Run(context.Background(), scenario, []sim.Contestant{
		{Name: "eager", Policy: eager},
		{Name: "careful", Policy: careful, Breaker: &breaker.Config{}},
	}, sim.Options{Seed: 1, Seeds: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range report.Results {
		fmt.Printf("%s: %.0f %% succeed, %.0f %% of the work is wasted, %.0f %% of the runs never recover\n",
			r.Name, 100*r.Success.Mean, 100*r.Wasted.Mean, 100*r.NeverRecovers)
	}
	// Output:
	// eager: 7 % succeed, 95 % of the work is wasted, 100 % of the runs never recover
	// careful: 92 % succeed, 3 % of the work is wasted, 0 % of the runs never recover
}

// A custom scenario is a struct. Validate returns all its problems at once.
func ExampleScenario() {
	s := sim.Scenario{
		Name:     "checkout",
		Clients:  sim.Clients{Count: 100, Arrivals: sim.Open},
		Services: []sim.Service{{Name: "payments", Calls: "bank", Latency: sim.Latency{Distribution: "quick", Mean: 1}}},
	}
	fmt.Println(s.Validate())
	// Output:
	// duration: must be above zero
	// clients.rate: 0 is not above 0 and at most 1e+09 calls per second
	// services[0].latency.distribution: "quick": want constant, exponential or lognormal
	// services[0].calls: there is no service "bank"
}

func ExamplePresets() {
	for name, about := range sim.Presets {
		fmt.Printf("%-10s  %s\n", name, about)
	}
	// Output:
	// herd        a thousand clients fail at the same moment; do they also retry at the same moment?
	// outage      a service at two thirds of its capacity is down for half a minute
	// brownout    a service loses half of its workers for half a minute, and a fifth of its answers are errors
	// ratelimit   ten thousand clients want one call each within 20 s from a service that allows 50 a second
	// contention  fifty writers change one value at the same moment
	// layers      three layers that all retry, above a database that is down
	// metastable  ten seconds without capacity; do retries keep the service overloaded afterwards?
	// hedge       one answer in a hundred takes thirty times as long
}
