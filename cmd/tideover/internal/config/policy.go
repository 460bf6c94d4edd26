package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/retry"
)

// policies reads the section. A policy can be made from one above it.
func (l *loader) policies(at place) {
	for _, p := range at.node.pairs {
		l.later[p.key.text] = true
	}
	l.named(at, "policy", func(name string, at place) {
		delete(l.later, name)
		if _, taken := retry.Preset(name); taken {
			l.bad(at, "%q is the name of a preset; choose another", name)
			return
		}
		if _, err := backoff.ParseKind(name); err == nil {
			l.bad(at, "%q is the name of a family; choose another", name)
			return
		}
		if p, ok := l.policy(at); ok {
			l.cfg.Policies[name], l.spenders[name] = p, l.unbudgeted(at.node)
			l.value(at, p.String())
		}
	})
}

// policy reads a policy as text or as a map.
func (l *loader) policy(at place) (p retry.Policy, ok bool) {
	switch at.node.kind {
	case mapKind:
		return l.policyMap(at)
	case stringKind:
		p, err := l.policyText(at.node.text)
		if err != nil {
			l.bad(at, "%v", err)
		}
		return p, err == nil
	default:
		l.bad(at, "%v, where a policy is expected: a text such as exponential(1s..2m) attempts=6, or a map of the same keys", at.node.kind)
		return p, false
	}
}

// policyText is [retry.Parse] with the names of the file in front of the
// presets.
func (l *loader) policyText(text string) (retry.Policy, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return retry.Parse(text)
	}
	p, ok := l.cfg.Policies[words[0]]
	if !ok {
		return l.unnamed(words[0], text)
	}
	seen := map[string]bool{}
	for _, w := range words[1:] {
		name, value, ok := strings.Cut(w, "=")
		var err error
		switch {
		case !ok:
			err = fmt.Errorf("%q is not of the form key=value", w)
		case seen[name]:
			err = fmt.Errorf("key %q is given already", name)
		default:
			p, err = p.With(name, value)
		}
		if err != nil {
			return p, fmt.Errorf("policy %q: %w", text, err)
		}
		seen[name] = true
	}
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("policy %q: %s", text, oneline.Error(err))
	}
	return p, nil
}

// unnamed reads a policy whose first word is no name of the file.
func (l *loader) unnamed(head, text string) (retry.Policy, error) {
	p, err := retry.Parse(text)
	if err == nil || strings.ContainsAny(head, "(=") {
		return p, err
	}
	if l.later[head] {
		return p, fmt.Errorf("policy %q is defined further down; a policy is made from one above it", head)
	}
	if _, preset := retry.Preset(head); preset {
		return p, err
	}
	names := make([]string, 0, len(l.cfg.Policies))
	for name := range l.cfg.Policies {
		names = append(names, name)
	}
	slices.Sort(names)
	if near := nearest(head, names); near != "" {
		return p, fmt.Errorf("policy %q is unknown; did you mean %q?", head, near)
	}
	return p, err
}

// policyMap reads a policy from the keys of the text form and kind.
func (l *loader) policyMap(at place) (p retry.Policy, ok bool) {
	before := len(l.problems)
	object(l, at, policyKeys, &p)
	if len(l.problems) > before {
		return p, false
	}
	if err := p.Validate(); err != nil {
		l.bad(at, "%s", oneline.Error(err))
		return p, false
	}
	return p, true
}

// policyDocs describe the keys of the text form.
var policyDocs = map[string]string{
	"base":            "Delay before the first retry.",
	"cap":             "No delay exceeds it; none for no limit.",
	"factor":          "Growth per retry of an exponential; 2 unless said.",
	"max-doublings":   "An exponential stops growing after so many steps.",
	"jitter":          "Range from which the delay is drawn: none, 20%, +50%, 0.5..1.5, full, equal, true.",
	"attempts":        "Tries in all, the first included, or unlimited; 1 unless said.",
	"attempt-timeout": "Ends one attempt.",
	"total-timeout":   "Ends all attempts and waits together.",
	"throttle-base":   "Base after the other side asked for less.",
	"server-wait":     "Longest delay stated by a server that is honoured; 120s unless said.",
	"server-slack":    "Added to a delay stated by a server.",
	"reset-after":     "An attempt that lasts so long clears the count of attempts.",
	"budget":          "What retries may cost, all calls together; not for steps.",
	"hedge":           "Second attempt beside a slow one; not for steps.",
}

// policyKeys are kind and the keys of the text form, whose values are read by
// package retry.
var policyKeys = func() []key[retry.Policy] {
	keys := []key[retry.Policy]{{
		name: "kind", required: true, doc: "The family: how the delay grows.",
		schema: func() *jsonschema.Schema { return enum("fixed", "linear", "exponential", "decorrelated") },
		set: func(l *loader, at place, p *retry.Policy) {
			kind, err := backoff.ParseKind(at.node.text)
			if err != nil || !at.node.scalar() {
				l.bad(at, "%q is not one of fixed, linear, exponential, decorrelated", at.node.text)
				return
			}
			p.Kind = kind
		},
	}}
	for _, name := range retry.Keys() {
		keys = append(keys, key[retry.Policy]{
			name: name, doc: policyDocs[name], required: name == "base", schema: scalarSchema,
			set: func(l *loader, at place, p *retry.Policy) {
				s, ok := l.scalar(at)
				if !ok {
					return
				}
				q, err := p.With(name, s)
				if err != nil {
					l.bad(at, "%v", strings.TrimPrefix(err.Error(), name+": "))
					return
				}
				*p = q
			},
		})
	}
	return keys
}()

// refused returns the keys that a step can't honour. A command has no server
// that could state a delay.
func refused(command bool) []string {
	keys := []string{"hedge", "budget"}
	if command {
		keys = append(keys, "server-wait", "server-slack")
	}
	return keys
}

// stepPolicy reads the policy of a step, or takes the preset for its kind.
func (l *loader) stepPolicy(at place, found map[string]place, command bool) retry.Policy {
	preset := "workflow-api"
	if command {
		preset = "workflow"
	}
	return l.policyOr(preset, at, found, func(p retry.Policy) error { return p.Refuse("step", refused(command)...) })
}

// policyOr reads the policy of a place and checks it, or takes the preset.
func (l *loader) policyOr(preset string, at place, found map[string]place, check func(retry.Policy) error) (p retry.Policy) {
	here, ok := found["policy"]
	if !ok {
		p, _ = retry.Preset(preset)
		l.value(at.child("policy", given(preset, "default")), p.String())
		return p
	}
	if p, ok = l.policy(here); !ok {
		return p
	}
	if err := check(p); err != nil {
		l.bad(here, "%s", oneline.Error(err))
		return p
	}
	l.value(here, p.String())
	return p
}
