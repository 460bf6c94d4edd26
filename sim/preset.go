package sim

import (
	"slices"
	"time"
)

// presets are the named scenarios, in the order in which they are listed.
var presets = []Scenario{herd, outage, brownout, rateLimit, contention, layers, metastable, hedge}

var (
	herd = Scenario{
		Name:     "herd",
		About:    "a thousand clients fail at the same moment; do they also retry at the same moment?",
		Duration: 10 * time.Second, Drain: 50 * time.Second, Bucket: 10 * time.Millisecond,
		Clients:  Clients{Count: 1000, Arrivals: Herd, Spread: 10 * time.Millisecond},
		Services: []Service{{Name: "service", Workers: 50, Latency: Latency{Distribution: Constant, Mean: 10 * time.Millisecond}}},
		Failures: []Failure{{Kind: Outage, Until: 20 * time.Millisecond}},
	}
	outage = Scenario{
		Name:     "outage",
		About:    "a service at two thirds of its capacity is down for half a minute",
		Duration: 2 * time.Minute, Drain: time.Minute, Bucket: time.Second,
		Clients:  Clients{Count: 1000, Arrivals: Open, Rate: 200, Sharing: 50},
		Services: []Service{queuedService},
		Failures: []Failure{{Kind: Outage, From: 20 * time.Second, Until: 50 * time.Second}},
	}
	brownout = Scenario{
		Name:     "brownout",
		About:    "a service loses half of its workers for half a minute, and a fifth of its answers are errors",
		Duration: 3 * time.Minute, Drain: time.Minute, Bucket: time.Second,
		Clients:  Clients{Count: 1000, Arrivals: Open, Rate: 200, Sharing: 50},
		Services: []Service{queuedService},
		Failures: []Failure{
			{Kind: Capacity, From: 20 * time.Second, Until: 50 * time.Second, Share: 0.5},
			{Kind: Errors, From: 20 * time.Second, Until: 50 * time.Second, Share: 0.2},
		},
	}
	rateLimit = Scenario{
		Name:     "ratelimit",
		About:    "ten thousand clients want one call each within 20 s from a service that allows 50 a second",
		Duration: 20 * time.Second, Drain: 20 * time.Minute, Bucket: time.Second,
		Clients: Clients{Count: 10_000, Arrivals: Herd, Spread: 20 * time.Second},
		Services: []Service{{
			Name: "service", Latency: Latency{Distribution: Constant, Mean: 10 * time.Millisecond},
			Limit: &RateLimit{Rate: 50, Burst: 5},
		}},
	}
	contention = Scenario{
		Name:     "contention",
		About:    "fifty writers change one value at the same moment",
		Duration: 10 * time.Minute, Bucket: 100 * time.Millisecond,
		Writers: &Writers{Count: 50, Hop: 10 * time.Millisecond, Sigma: 2 * time.Millisecond},
	}
	layers = Scenario{
		Name:     "layers",
		About:    "three layers that all retry, above a database that is down",
		Duration: 20 * time.Second, Drain: 10 * time.Minute, Bucket: time.Second,
		Clients: Clients{Count: 1000, Arrivals: Open, Rate: 100, Sharing: 1000},
		Services: []Service{
			{Name: "front", Calls: "middle", Latency: instant},
			{Name: "middle", Calls: "database", Latency: instant},
			{Name: "database", Latency: Latency{Distribution: Constant, Mean: time.Millisecond}},
		},
		Failures: []Failure{{Kind: Errors, Service: "database", Share: 1}},
	}
	metastable = Scenario{
		Name:     "metastable",
		About:    "ten seconds without capacity; do retries keep the service overloaded afterwards?",
		Duration: 5 * time.Minute, Drain: 2 * time.Minute, Bucket: time.Second,
		Clients:  Clients{Count: 1000, Arrivals: Open, Rate: 280, Sharing: 50},
		Services: []Service{queuedService},
		Failures: []Failure{{Kind: Capacity, From: 20 * time.Second, Until: 30 * time.Second}},
	}
	hedge = Scenario{
		Name:     "hedge",
		About:    "one answer in a hundred takes thirty times as long",
		Duration: 30 * time.Second, Drain: 10 * time.Second, Bucket: time.Second,
		Clients:  Clients{Count: 1000, Arrivals: Open, Rate: 5000, Sharing: 100},
		Services: []Service{{Name: "service", Workers: 100, Latency: Latency{Distribution: Lognormal, Mean: 10 * time.Millisecond, Sigma: 0.3}}},
		Failures: []Failure{{Kind: Slow, Share: 0.01, Factor: 30}},
	}
)

// instant is the latency of a service that only calls another.
var instant = Latency{Distribution: Constant, Mean: time.Microsecond}

// queuedService is a service with an unlimited queue.
var queuedService = Service{Name: "service", Workers: 30, Latency: Latency{Distribution: Exponential, Mean: 100 * time.Millisecond}}

// Preset returns the named scenario.
func Preset(name string) (Scenario, bool) {
	i := slices.IndexFunc(presets, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return presets[i].clone(), true
}

// Presets yields the names of all presets and what each is about.
func Presets(yield func(name, about string) bool) {
	for _, s := range presets {
		if !yield(s.Name, s.About) {
			return
		}
	}
}

// clone returns a copy that shares no memory with the scenario.
func (s Scenario) clone() Scenario {
	s.Services, s.Failures = slices.Clone(s.Services), slices.Clone(s.Failures)
	s.Clients.Fallback, s.Clients.Load = slices.Clone(s.Clients.Fallback), slices.Clone(s.Clients.Load)
	for i, v := range s.Services {
		s.Services[i].Limit = clonePointer(v.Limit)
	}
	s.Writers, s.Group = clonePointer(s.Writers), clonePointer(s.Group)
	return s
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
