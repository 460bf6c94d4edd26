package server

import (
	"cmp"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// Provider is one that the gateway serves, and whose credentials it sends.
type Provider struct {
	Name    string
	Keys    []string // references to its keys; none means that callers bring their own, unless Keyless
	Keyless bool     // no credentials are sent
}

// providersOf returns those of the configuration, in its order.
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

// enough refuses a configuration with which a gateway alone would serve nothing.
func (s *server) enough(cfg *config.Config) error {
	if !s.Gateway || len(cfg.Providers) > 0 {
		return nil
	}
	return &scantError{cmp.Or(s.Source.Path, "the configuration")}
}

// scantError says that a file is good, but not for a gateway alone.
type scantError struct{ file string }

// Error implements [error].
func (e *scantError) Error() string {
	return "there are no providers: name some under providers: in " + e.file
}
