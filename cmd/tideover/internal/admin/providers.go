package admin

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"

	"github.com/tideover/tideover/gateway"
)

// Gateway is the part of a [*gateway.Gateway] that [Providers] needs.
type Gateway interface {
	// Status returns the state of all providers.
	Status() []gateway.Status

	// Control applies one of gateway.Actions to a provider. The error for an unknown name wraps
	// gateway.ErrUnknownProvider or gateway.ErrUnknownAction.
	Control(name, action string) error
}

// Providers has the operations on the providers of the gateway.
type Providers struct {
	gateway Gateway // nil means no providers
	log     *slog.Logger
	changed func(name, action, by string) // records an action; nil means that it is only logged
}

// NewProviders returns the operations on the providers of a gateway. A nil gateway has no
// providers; a nil logger means slog.Default.
func NewProviders(g Gateway, log *slog.Logger) *Providers {
	return &Providers{gateway: g, log: cmp.Or(log, slog.Default())}
}

// List returns the state of the providers, in the order of the configuration.
func (p *Providers) List() []gateway.Status {
	if p.gateway == nil {
		return nil
	}
	return slices.Clone(p.gateway.Status())
}

// Get returns the state of a provider.
func (p *Providers) Get(name string) (gateway.Status, error) {
	list := p.List()
	names := make([]string, len(list))
	for i, st := range list {
		if st.Name == name {
			return st, nil
		}
		names[i] = st.Name
	}
	e := control.NewError(control.CodeNotFound, fmt.Sprintf("no such provider: %q", control.Excerpt(name)), textfmt.SuggestName("provider", name, names))
	return gateway.Status{}, e
}

// Apply applies one of [gateway.Actions] to a provider and returns the new state. It logs the
// action and by, which names the user, since a provider has no history that could show them.
func (p *Providers) Apply(name, action, by string) (gateway.Status, error) {
	before, err := p.Get(name)
	if err != nil {
		return before, err
	}
	if err := p.gateway.Control(name, action); err != nil {
		if errors.Is(err, gateway.ErrUnknownProvider) || errors.Is(err, gateway.ErrUnknownAction) {
			err = control.NewError(control.CodeNotFound, err.Error(), "")
		}
		return before, err
	}
	after, err := p.Get(name)
	if p.changed != nil {
		p.changed(name, action, by)
	}
	p.log.Info("provider action applied", "provider", name, "action", action, "by", by, "was", before.State, "is", after.State)
	return after, err
}

// ProviderMeaning returns a sentence about the effect of a provider's state on requests.
func ProviderMeaning(st *gateway.Status) string {
	switch st.State {
	case gateway.Up:
		if st.Held {
			return "it counts as up even if it fails, until it is reset"
		}
		return "all requests are sent to it"
	case gateway.Refused:
		return cmp.Or(st.Why, "its keys were rejected") + ": they are used only for requests that no other target accepts"
	case gateway.Throttled:
		return cmp.Or(st.Why, "its keys are throttled")
	case gateway.Recovering:
		return "waiting requests are admitted one after the other"
	case gateway.Probing:
		return "one request probes whether it is back"
	case gateway.Down:
		if st.Recovery != nil && st.Recovery.Due {
			return "the next request is a probe"
		}
		return "no requests are sent until the next probe"
	case gateway.Opened:
		return "no requests are sent until it is forced or reset"
	case gateway.Draining:
		return "requests in flight are finished; new ones go to a fallback or are rejected"
	}
	return ""
}
