package nip90

import (
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/nostr"
)

// Offer is what a configuration offers. The zero value is nothing.
type Offer struct{ set *setup }

// setup is what is offered, and how.
type setup struct {
	*Spec
	key   nostr.SecretKey
	kinds map[int]*kind
	text  string // what would have to change for links to be made anew
}

// kind is a kind of job.
type kind struct {
	*JobKind
	flow *engine.Workflow
}

// Config is the part of a configuration that an offer is made of.
type Config struct {
	Spec      *Spec                      // nil means that nothing is offered
	Workflows map[string]*steps.Workflow // by name
	Secrets   secret.Resolver
	Values    []strictyaml.Value // links to relays are made again if those of nip90 change
}

// Plan returns what a configuration offers.
func Plan(c Config, alarm steps.Alarm) (Offer, error) {
	if c.Spec == nil {
		return Offer{}, nil
	}
	key, err := c.Spec.SecretKey(c.Secrets)
	if err != nil {
		return Offer{}, err
	}
	answer, err := newAnswerFlow()
	if err != nil {
		return Offer{}, err
	}
	set := &setup{Spec: c.Spec, key: key, kinds: map[int]*kind{}, text: key.PublicKey()}
	for _, k := range c.Spec.Kinds {
		flow, err := newJobFlow(c, k, answer, alarm)
		if err != nil {
			return Offer{}, err
		}
		set.kinds[k.Kind] = &kind{k, flow}
	}
	for _, v := range c.Values {
		if strings.HasPrefix(v.Path, Prefix) {
			set.text += "\n" + v.Path + " " + v.Text
		}
	}
	return Offer{set}, nil
}

// Workflows returns the workflows of jobs, which the engine must have.
func (o Offer) Workflows() (list []*engine.Workflow) {
	if o.set == nil {
		return nil
	}
	for _, k := range o.set.Kinds {
		list = append(list, o.set.kinds[k.Kind].flow)
	}
	return list
}
