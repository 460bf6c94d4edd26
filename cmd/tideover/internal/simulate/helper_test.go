package simulate

import (
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
)

// simulated runs the scenario of a file and returns the view of the report.
func simulated(t *testing.T, f File, seeds int) *View {
	t.Helper()
	r, err := sim.Run(t.Context(), f.Scenario, f.Policies, sim.Options{Seeds: seeds})
	if err != nil {
		t.Fatal(err)
	}
	return &View{Scenario: f.Scenario, Contestants: f.Policies, Report: r, Command: "tideover sim " + f.Scenario.Name}
}

// harm is hostile text for a name.
const harm = "\x1b[31m\u202e\n" + `</title></style><script>window.planted=1</script><img src=//evil.example/x onerror="planted=1">'"&{{.}}` + "\x1b]0;x\x07--"

// hostile is a scenario with hostile text.
var hostile = File{
	Scenario: sim.Scenario{
		Name: harm, About: harm, Duration: 5 * time.Second, Drain: 5 * time.Second, Bucket: 100 * time.Millisecond,
		Clients:  sim.Clients{Count: 20, Arrivals: sim.Open, Rate: 50},
		Services: []sim.Service{{Name: harm, Workers: 2, Latency: sim.Latency{Distribution: sim.Exponential, Mean: 20 * time.Millisecond}}},
		Failures: []sim.Failure{{Kind: sim.Outage, Service: harm, From: time.Second, Until: 2 * time.Second}},
	},
	Policies: []sim.Contestant{
		{Name: harm, Policy: must("fixed(100ms) attempts=3")},
		{Name: harm + "2", Policy: must("default")},
	},
}

func must(text string) retry.Policy {
	p, err := retry.Parse(text)
	if err != nil {
		panic(err)
	}
	return p
}
