package nip90

import (
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/nostr"
)

// Offer is what a configuration offers. The zero value is nothing.
type Offer struct{ set *setup }

// setup is what is offered, and how.
type setup struct {
	*config.NIP90
	key   nostr.SecretKey
	kinds map[int]*kind
	text  string // what would have to change for links to be made anew
}

// kind is a kind of job.
type kind struct {
	*config.JobKind
	flow *engine.Workflow
}

// Plan returns what a configuration offers.
func Plan(cfg *config.Config, alarm steps.Alarm) (Offer, error) {
	if cfg.NIP90 == nil {
		return Offer{}, nil
	}
	key, err := cfg.NIP90.SecretKey(cfg.Secrets())
	if err != nil {
		return Offer{}, err
	}
	answer, err := newAnswerFlow()
	if err != nil {
		return Offer{}, err
	}
	set := &setup{NIP90: cfg.NIP90, key: key, kinds: map[int]*kind{}, text: key.PublicKey()}
	for _, k := range cfg.NIP90.Kinds {
		flow, err := newJobFlow(cfg, k, answer, alarm)
		if err != nil {
			return Offer{}, err
		}
		set.kinds[k.Kind] = &kind{k, flow}
	}
	for _, v := range cfg.Values() {
		if strings.HasPrefix(v.Path, prefix) {
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
