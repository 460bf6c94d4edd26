package server

import (
	"context"
	"io"
	"net/http"
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

// drainTime is how long the requests of the gateway may take to end when the server shuts down.
const drainTime = 30 * time.Second

// decoders decode the bodies of failed responses in encodings that the library does not support.
var decoders = map[string]retryhttp.Decoder{
	"br": func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
}

// openGateway creates the gateway, even without providers: a reload may add some.
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
	})
	if err != nil {
		return err
	}
	p.observer.attachGateway(p.gateway)
	p.keyAccounts.attachGateway(p.gateway)
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

// gatewayHandler returns the handler of the paths below /p/.
func (p *parts) gatewayHandler() http.Handler { return p.gateway }

// drain waits until the requests of the gateway have ended, and records the limits that the last
// of them reported. It waits for at most drainTime, and not after hurry ends.
func (p *parts) drain(hurry context.Context) {
	limit, cancel := context.WithTimeout(hurry, drainTime)
	defer cancel()
	if err := p.gateway.Drain(limit); err != nil {
		p.log.Warn("requests of the gateway did not end in time", "error", err)
	}
	p.keyAccounts.sync(true)
}
