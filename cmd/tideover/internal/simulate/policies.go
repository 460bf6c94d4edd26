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

// file reads a whole file.
func (r *reader) file(root strictyaml.Place, f *File) {
	to := reflect.ValueOf(&f.Scenario).Elem()
	fields := fieldsOf(to.Type())
	for name, at := range root.Keys(append(names(fields), policiesKey)) {
		if name == policiesKey {
			r.policies(at, f)
			continue
		}
		r.field(at, to, fields, name)
	}
}

// policies reads a list of policies, or a map by name.
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

// policy adds a policy and returns it; nil if it is invalid.
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

// equipment is a policy with a breaker.
type equipment struct {
	Policy  string
	Breaker *breaker.Config
}

// equipped reads a policy with a breaker.
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
	if c != nil && e.Breaker != nil {
		r.places[contestant(len(f.Policies)-1)] = at
		c.Breaker = e.Breaker
	}
}

// schedule returns the delays of a breaker, in the form of a policy.
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
// optionally with NAME= before it.
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
