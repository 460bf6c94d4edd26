package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// policyReader reads the section policies, and the policies of other sections.
type policyReader struct {
	policies  map[string]retry.Policy
	later     map[string]bool // names of policies that have not been read yet
	unlimited map[string]bool // names of policies with budget=none
}

// section reads the section policies into r.policies. A policy can be based on a policy
// that the file defines above it.
func (r *policyReader) section(at place) {
	for _, p := range at.Node.Pairs {
		r.later[p.Key.Text] = true
	}
	at.EachName("policy", func(name string, at place) {
		delete(r.later, name)
		if _, taken := retry.Preset(name); taken {
			at.Bad("%q is the name of a preset; choose another", name)
			return
		}
		if _, err := backoff.ParseKind(name); err == nil {
			at.Bad("%q is the name of a family; choose another", name)
			return
		}
		if p, ok := r.policy(at); ok {
			r.policies[name], r.unlimited[name] = p, r.isUnbudgeted(at.Node)
			at.Record(p.String())
		}
	})
}

// policy reads a policy as text or as a map.
func (r *policyReader) policy(at place) (p retry.Policy, ok bool) {
	switch at.Node.Kind {
	case strictyaml.KindMap:
		return r.policyMap(at)
	case strictyaml.KindText:
		p, err := r.policyText(at.Node.Text)
		if err != nil {
			at.Bad("%v", err)
		}
		return p, err == nil
	default:
		at.Bad("%v, where a policy is expected: a text such as exponential(1s..2m) attempts=6, or a map of the same keys", at.Node.Kind)
		return p, false
	}
}

// policyText parses a policy that may begin with the name of a policy of the file or of
// a preset.
func (r *policyReader) policyText(text string) (retry.Policy, error) {
	p, err := retry.ParseWith(text, r.policyNamed)
	if words := strings.Fields(text); err != nil && len(words) > 0 {
		err = r.explainUnknown(words[0], err)
	}
	return p, err
}

// policyNamed returns the policy that has the name in the file, or else the preset.
func (r *policyReader) policyNamed(name string) (retry.Policy, bool) {
	if p, ok := r.policies[name]; ok {
		return p, true
	}
	return retry.Preset(name)
}

// explainUnknown returns a clearer error than err if the first word of a policy is the
// name of a policy that is defined further down, or resembles a known name. Otherwise it
// returns err.
func (r *policyReader) explainUnknown(name string, err error) error {
	if _, known := r.policyNamed(name); known || strings.ContainsAny(name, "(=") {
		return err
	}
	if r.later[name] {
		return fmt.Errorf("policy %q is defined below; a policy can only be based on one that is defined above it", name)
	}
	if near := textfmt.Nearest(name, slices.Sorted(maps.Keys(r.policies))); near != "" {
		return fmt.Errorf("unknown policy %q; did you mean %q?", name, near)
	}
	return err
}

// policyMap reads a policy that is written as a map, with the keys of policyKeys.
func (r *policyReader) policyMap(at place) (p retry.Policy, ok bool) {
	before := at.Document().Problems()
	strictyaml.Object(at, policyKeys(&p))
	if at.Document().Problems() > before {
		return p, false
	}
	if err := p.Validate(); err != nil {
		at.Bad("%s", oneline.Error(err))
		return p, false
	}
	return p, true
}

// policyDocs are the descriptions of the keys that the text form of a policy has.
var policyDocs = map[string]string{
	"base":            "Delay before the first retry.",
	"cap":             "Longest delay; none for no limit.",
	"factor":          "Growth per retry of an exponential. Default: 2.",
	"max-doublings":   "Number of retries after which an exponential stops growing.",
	"jitter":          "Range from which the delay is drawn: none, 20%, +50%, 0.5..1.5, full, equal, true.",
	"attempts":        "Total number of attempts, the first included, or unlimited. Default: 1.",
	"attempt-timeout": "Time limit for one attempt.",
	"total-timeout":   "Time limit for all attempts and waits together.",
	"throttle-base":   "Base delay after the server has throttled a request.",
	"server-wait":     "Longest delay stated by a server that is honoured. Default: 120s.",
	"server-slack":    "Added to a delay stated by a server.",
	"reset-after":     "An attempt that lasts at least this long resets the attempt count.",
	"budget":          "Retry budget that all calls share; not for steps.",
	"hedge":           "When to start a second attempt beside a slow one; not for steps.",
}

var families = []string{"fixed", "linear", "exponential", "decorrelated"}

// policyKeys are the keys of a policy that is a map: kind, and the keys of the text form,
// whose values package retry parses.
func policyKeys(p *retry.Policy) []key {
	keys := []key{strictyaml.Required(strictyaml.Func("kind", "", strictyaml.WordSchema(families...), func(at place) {
		kind, err := backoff.ParseKind(at.Node.Text)
		if err != nil || !at.Node.IsScalar() {
			at.Bad("%q is not one of %s", at.Node.Text, strings.Join(families, ", "))
			return
		}
		p.Kind = kind
	}, "The family: how the delay grows."))}
	for _, name := range retry.Keys() {
		keys = append(keys, key{
			Name: name, Doc: policyDocs[name], Required: name == "base", Schema: strictyaml.ScalarSchema,
			Set: func(at place) {
				s, ok := at.Text()
				if !ok {
					return
				}
				q, err := p.With(name, s)
				if err != nil {
					at.Bad("%v", strings.TrimPrefix(err.Error(), name+": "))
					return
				}
				*p = q
			},
		})
	}
	return keys
}

// refused returns the policy keys that a step or a notifier does not support. A command
// does not support server-wait and server-slack, because no server states a delay.
func refused(command bool) []string {
	keys := []string{"hedge", "budget"}
	if command {
		keys = append(keys, "server-wait", "server-slack")
	}
	return keys
}

// ofStep reads the policy of a step. The default is a preset for a command or a request.
func (r *policyReader) ofStep(at place, found map[string]place, command bool) retry.Policy {
	preset := "workflow-api"
	if command {
		preset = "workflow"
	}
	return r.orPreset(preset, at, found, func(p retry.Policy) error { return p.Refuse("step", refused(command)...) })
}

// orPreset reads and checks the key policy in found. If the key is absent, it returns the
// preset.
func (r *policyReader) orPreset(preset string, at place, found map[string]place, check func(retry.Policy) error) (p retry.Policy) {
	here, ok := found["policy"]
	if !ok {
		p, _ = retry.Preset(preset)
		at.RecordDefault("policy", p.String())
		return p
	}
	if p, ok = r.policy(here); !ok {
		return p
	}
	if err := check(p); err != nil {
		here.Bad("%s", oneline.Error(err))
		return p
	}
	here.Record(p.String())
	return p
}

// isUnbudgeted reports whether a policy, or the policy that it is based on, has
// budget=none.
func (r *policyReader) isUnbudgeted(n *strictyaml.Node) bool {
	if b := n.Get("budget"); b != nil {
		return b.Text == "none"
	}
	words := strings.Fields(n.Text)
	return len(words) > 0 && r.unlimited[words[0]] || slices.Contains(words, "budget=none")
}

// recorded reads a policy and records it as a value in effect. It returns the zero policy if
// the policy is invalid.
func (r *policyReader) recorded(at place) retry.Policy {
	p, ok := r.policy(at)
	if !ok {
		return retry.Policy{}
	}
	at.Record(p.String())
	return p
}

// ofProvider reads the policy of a provider. Retries at a provider always have a budget,
// so it refuses a policy with budget=none.
func (r *policyReader) ofProvider(at place) retry.Policy {
	p := r.recorded(at)
	if r.isUnbudgeted(at.Node) && p.Budget == (limit.BudgetSpec{}) {
		at.Bad("budget=none: retries at a provider always have a budget, so that they can't make an outage worse; leave it out for the default, %v, or set a larger one", limit.ProviderBudget())
	}
	return p
}
