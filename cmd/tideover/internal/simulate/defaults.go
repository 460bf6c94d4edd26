package simulate

import (
	"reflect"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
)

// named is a built-in policy.
type named struct{ name, text string }

// defaults are the policies that are compared by default: common first choices, and better ones.
var defaults = map[string][]named{
	"herd": {
		{"fixed", "fixed(200ms) attempts=20"},
		{"exponential", "exponential(100ms..10s) attempts=10"},
		{"jitter", "exponential(100ms..10s) jitter=full attempts=10"},
	},
	"outage": {
		{"fixed", "fixed(1s) attempts=60"},
		{"exponential", "exponential(100ms..20s) attempts=10"},
		{"jitter", "exponential(100ms..20s) jitter=full attempts=10"},
		{"default", "default"},
	},
	"brownout": {
		{"fixed", "fixed(100ms) attempts=10 attempt-timeout=1s"},
		{"jitter", "exponential(100ms..10s) jitter=full attempts=5 attempt-timeout=1s"},
		{"default", "default attempt-timeout=1s"},
	},
	"ratelimit": {
		{"fixed", "fixed(1s) attempts=unlimited"},
		{"exponential", "exponential(1s..1m) attempts=unlimited"},
		{"jitter", "exponential(1s..1m) jitter=full attempts=unlimited"},
	},
	"contention": {
		{"at-once", "fixed(0s) attempts=unlimited"},
		{"exponential", "exponential(10ms..1s) attempts=unlimited"},
		{"contention", "contention attempts=unlimited"},
	},
	"layers": {
		{"four-attempts", "fixed(100ms) attempts=4"},
		{"two-attempts", "fixed(100ms) attempts=2"},
		{"default", "default"},
	},
	"metastable": {
		{"fixed", "fixed(100ms) attempts=5 attempt-timeout=1s"},
		{"jitter", "exponential(100ms..10s) jitter=full attempts=5 attempt-timeout=1s"},
		{"budget", "exponential(100ms..10s) jitter=full attempts=5 attempt-timeout=1s budget=refund(1,0.1,10)"},
	},
	"hedge": {
		{"patient", "fixed(0s)"},
		{"timeout", "fixed(0s) attempts=3 attempt-timeout=50ms"},
		{"hedged", "fixed(0s) hedge=p95/5%"},
	},
}

// ofWriters and ofServices are for scenarios in files.
var (
	// ofWriters and ofServices are the defaults for scenarios in files.
	ofWriters  = defaults["contention"]
	ofServices = []named{
		{"fixed", "fixed(100ms) attempts=5 attempt-timeout=1s"},
		{"exponential", "exponential(100ms..10s) attempts=5 attempt-timeout=1s"},
		{"default", "default attempt-timeout=1s"},
	}
)

// Policies returns the default policies for the scenario.
func Policies(s sim.Scenario) (cs []sim.Contestant) {
	list := ofServices
	if contended(s) {
		list = ofWriters
	}
	if own, ok := sim.Preset(s.Name); ok && reflect.DeepEqual(own, s) {
		list = defaults[s.Name]
	}
	for _, n := range list {
		p, _ := retry.Parse(n.text) // a test parses all of them
		cs = append(cs, sim.Contestant{Name: n.name, Policy: p})
	}
	return cs
}

// Preset returns the built-in scenario with this name, with its policies.
func Preset(name string) (f File, ok bool) {
	if f.Scenario, ok = sim.Preset(name); ok {
		f.Policies = Policies(f.Scenario)
	}
	return f, ok
}
