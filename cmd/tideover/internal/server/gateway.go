package server

import (
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
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// drainTime is how long requests of the gateway may take to end when the server is
// told to.
const drainTime = 30 * time.Second

// decoders read the bodies of failures in encodings that the library does not know.
var decoders = map[string]retryhttp.Decoder{
	"br": func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil },
}

// openGateway makes the gateway, also when there are no providers: a reload may
// bring some.
func (s *server) openGateway() error {
	specs, err := s.providers(s.cfg)
	if err != nil {
		return err
	}
	var token secret.String
	if t := s.cfg.Gateway.Token; t != nil {
		if token, err = t.Resolve(s.cfg.Secrets()); err != nil {
			return err
		}
	}
	s.accounts = &account.Store{Dir: client.AccountsFolder(s.cfg.Server.Data), Warn: func(text string) { s.Log.Warn("limits of accounts", "problem", text) }}
	s.keyAccounts = newKeyAccounts(s.accounts, client.UserFolder("quota"), s.Log)
	s.gateway, err = gateway.New(specs, gateway.Options{
		Token: gateway.NewSecret(token.Reveal()), Hosts: s.addresses.hosts(), Observer: s.tell, Logger: s.Log, Redact: s.Source.Redactor.String,
		Accounts: s.keyAccounts, RecoveryFile: filepath.Join(s.cfg.Server.Data, "gateway.json"), Decoders: decoders,
	})
	if err != nil {
		return err
	}
	s.keyAccounts.gateway = s.gateway
	s.keyAccounts.follow(specs)
	return nil
}

// providers returns those of the configuration, and of the demo.
func (s *server) providers(cfg *config.Config) ([]gateway.Spec, error) {
	specs, err := cfg.ProviderSpecs()
	if err != nil {
		return nil, err
	}
	if s.demo != nil {
		specs = append(specs, s.demo.Providers...)
	}
	return specs, nil
}

// tell puts an event of the gateway where those of the engine go.
func (s *server) tell(ev retry.Event) {
	if s.engine != nil {
		s.engine.Tell(ev)
	} else {
		s.record(ev)
	}
}

// drain lets the requests of the gateway end.
func (s *server) drain(hurry context.Context) {
	limit, cancel := context.WithTimeout(hurry, drainTime)
	defer cancel()
	if err := s.gateway.Drain(limit); err != nil {
		s.Log.Warn("the gateway was not done", "error", err)
	}
}
