package sim

import (
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// plan is a valid scenario with values that can be computed before a run.
type plan struct {
	scenario    Scenario
	targets     []int          // services that the clients' attempts go to, in turn
	policies    []retry.Policy // of the services that have their own
	sharing     int            // clients per process
	processes   int
	prioritised bool
	failuresEnd time.Duration // when the last failure has ended; 0 if none ends

	memoryLimit int64         // bytes that a run may use
	share       int64         // bytes that a run may use while others use their share
	large       chan struct{} // contains an element while a run uses more than its share
}

func newPlan(s Scenario) *plan {
	p := &plan{scenario: s, sharing: max(s.Clients.Sharing, 1), targets: []int{0}, memoryLimit: MaxMemory, share: MaxMemory, large: make(chan struct{}, 1)}
	p.processes = (s.Clients.Count + p.sharing - 1) / p.sharing
	p.prioritised = s.Clients.Priorities != [limit.Classes]float64{}
	for _, name := range s.Clients.Fallback {
		p.targets = append(p.targets, s.index(name))
	}
	p.policies = make([]retry.Policy, len(s.Services))
	for i, v := range s.Services {
		if v.Policy != "" {
			p.policies[i], _ = retry.Parse(v.Policy) // it was validated
		}
	}
	for _, f := range s.Failures {
		p.failuresEnd = max(p.failuresEnd, f.Until)
	}
	return p
}
