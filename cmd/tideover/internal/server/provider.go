package server

import (
	"cmp"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// Provider is a provider that the gateway serves, and the source of its credentials.
type Provider struct {
	Name    string
	Keys    []string // references to its keys; if empty, callers send their own key, unless Keyless
	Keyless bool     // no credentials are sent
}

// providersOf returns the providers of the configuration, in its order.
func providersOf(cfg *config.Config) (list []Provider) {
	for _, name := range cfg.ProviderNames() {
		c := cfg.Providers[name]
		p := Provider{Name: name, Keyless: c.Keyless}
		for _, k := range c.Auth {
			p.Keys = append(p.Keys, k.Value.String())
		}
		list = append(list, p)
	}
	return list
}

// requireProviders rejects a configuration without providers for a gateway that runs alone.
func requireProviders(o Options, cfg *config.Config) error {
	if !o.Gateway || len(cfg.Providers) > 0 {
		return nil
	}
	return &noProvidersError{cmp.Or(o.Source.Path, "the configuration")}
}

// noProvidersError reports a valid file that has no providers.
type noProvidersError struct{ file string }

// Error implements [error].
func (e *noProvidersError) Error() string {
	return "there are no providers: name some under providers: in " + e.file
}
