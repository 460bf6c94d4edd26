package server

import (
	"cmp"
	"context"
	"io"
	"path/filepath"
	"time"

	"github.com/andybalholm/brotli"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retryhttp"
)

// drainTime is how long a shutdown waits for the requests of the gateway to end.
const drainTime = 30 * time.Second

// decoders decode the bodies of failed responses, by encoding. The library supports the other
// encodings itself.
var decoders = map[string]retryhttp.Decoder{
	"br": func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
}

// openGateway creates the gateway and the shared limits of accounts. It does so even without
// providers, since a reload may add some.
func (p *parts) openGateway() error {
	specs, err := p.providers(p.cfg)
	if err != nil {
		return err
	}
	var token secret.String
	if t := p.cfg.Gateway.Token; t != nil {
		if token, err = t.Resolve(p.cfg.Secrets()); err != nil {
			return err
		}
	}
	p.accounts = &account.Store{Dir: client.AccountsFolder(p.cfg.Server.Data), Warn: func(text string) { p.log.Warn("limits of accounts", "problem", text) }}
	p.keyAccounts = newKeyAccounts(p.accounts, client.UserFolder("quota"), p.log)
	p.gateway, err = gateway.New(specs, gateway.Options{
		Token: gateway.NewSecret(token.Reveal()), Hosts: p.addresses.hosts(), Observer: p.observer.publish, Logger: p.log, Redact: p.redactor.String,
		Accounts: p.keyAccounts, RecoveryFile: filepath.Join(p.cfg.Server.Data, "gateway.json"), Decoders: decoders,
		KeepRequests: cmp.Or(p.cfg.Gateway.KeepRequests, -1), Refused: p.observer.recordRefused,
	})
	if err != nil {
		return err
	}
	p.observer.gateway, p.keyAccounts.gateway = p.gateway, p.gateway
	p.keyAccounts.setProviders(specs)
	return nil
}

// providers returns the providers of a configuration and of the demo.
func (p *parts) providers(cfg *config.Config) ([]gateway.Spec, error) {
	specs, err := cfg.ProviderSpecs()
	if err != nil {
		return nil, err
	}
	if p.demo != nil {
		specs = append(specs, p.demo.Providers...)
	}
	return specs, nil
}

// drain waits until the requests of the gateway have ended, but no longer than drainTime or until
// the context hurry ends. Then it records the limits that the last requests reported.
func (p *parts) drain(hurry context.Context) {
	limit, cancel := context.WithTimeout(hurry, drainTime)
	defer cancel()
	if err := p.gateway.Drain(limit); err != nil {
		p.log.Warn("requests of the gateway did not end in time", "error", err)
	}
	p.keyAccounts.sync(true)
}

// Provider is a provider that the gateway serves, and the source of its credentials.
type Provider struct {
	Name    string
	Keys    []string // references to its keys; if empty, callers send their own key, unless Keyless
	Keyless bool     // the provider needs no credentials, and none are sent
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

// requireProviders returns an error if a gateway alone is to run without providers.
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
