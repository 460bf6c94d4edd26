package simulate

import (
	"reflect"
	"slices"
	"strings"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
)

// policiesKey is the only key of a file that does not belong to the scenario.
const policiesKey = "policies"

// file reads the scenario and the policies of a file.
func (r *reader) file(root strictyaml.Place, f *File) {
	to := reflect.ValueOf(&f.Scenario).Elem()
	names, fields := fieldsOf(to.Type())
	for name, at := range root.Keys(append(names, policiesKey)) {
		if name == policiesKey {
			r.policies(at, f)
		} else {
			r.value(at, to.FieldByIndex(fields[name].Index))
		}
	}
}

// policies reads the policies of a file: a list, or a map from names to policies.
func (r *reader) policies(p strictyaml.Place, f *File) {
	if p.IsList() {
		items, _ := p.Items()
		for _, at := range items {
			if text, ok := at.Text(); ok {
				r.policy(at, strings.Join(strings.Fields(text), " "), text, f)
			}
		}
		return
	}
	for name, at := range p.Keys(nil) {
		if at.IsMap() {
			r.equipped(name, at, f)
		} else if text, ok := at.Text(); ok {
			r.policy(at, name, text, f)
		}
	}
}

// policy parses a policy, adds it to the file and returns it. If the text is invalid, it records the
// problem and returns nil.
func (r *reader) policy(at strictyaml.Place, name, text string, f *File) *sim.Contestant {
	p, err := retry.Parse(text)
	if err != nil {
		at.Bad("%s", oneline.Error(err))
		return nil
	}
	r.places[contestant(len(f.Policies))] = at
	f.Policies = append(f.Policies, sim.Contestant{Name: name, Policy: p})
	return &f.Policies[len(f.Policies)-1]
}

// equipment is a policy in a file that is written as a map, with an optional breaker.
type equipment struct {
	Policy  string
	Prepaid bool
	Breaker *breaker.Config
}

// equipped reads a policy that is written as a map, with an optional breaker.
func (r *reader) equipped(name string, at strictyaml.Place, f *File) {
	var e equipment
	r.value(at, reflect.ValueOf(&e).Elem())
	here, ok := r.places[at.Path()+".policy"]
	if !ok {
		at.Bad("%q is missing", "policy")
		return
	}
	if r.broken[here.Path()] {
		return
	}
	c := r.policy(here, name, e.Policy, f)
	if c != nil && (e.Breaker != nil || e.Prepaid) {
		r.places[contestant(len(f.Policies)-1)] = at
		c.Breaker, c.Prepaid = e.Breaker, e.Prepaid
	}
}

// schedule parses the delays of a breaker, which are written like the schedule of a policy.
func schedule(at strictyaml.Place) (s backoff.Schedule, ok bool) {
	text, ok := at.Text()
	if !ok || text == "" {
		return s, ok
	}
	p, err := retry.Parse(text)
	switch {
	case err != nil:
		at.Bad("%s", oneline.Error(err))
	case p != retry.Policy{Schedule: p.Schedule}:
		at.Bad("only delays are allowed here, as in exponential(5s..1m) jitter=50%%")
	default:
		return p.Schedule, true
	}
	return s, false
}

var flagName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9-]*$`)

// ParsePolicy parses a policy of the command line: its text form or the name of a preset,
// optionally with NAME= before it. Without NAME=, the text is the name.
func ParsePolicy(text string) (sim.Contestant, error) {
	name, rest, named := strings.Cut(text, "=")
	if !named || !flagName.MatchString(name) || slices.Contains(retry.Keys(), name) {
		name, rest = strings.Join(strings.Fields(text), " "), text
	}
	p, err := retry.Parse(rest)
	if err != nil {
		return sim.Contestant{}, err
	}
	return sim.Contestant{Name: name, Policy: p}, nil
}

// named is a built-in policy.
type named struct{ name, text string }

// defaults has, for each preset, the policies that are compared by default: policies that many
// programs start with, and better ones.
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

// ofWriters and ofServices are the default policies for scenarios in files: with conflicting
// writers, and with services.
var (
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
