package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine/jetstream"
)

// Cluster returns how the log of a cluster is opened, with the secrets as they are
// now. The caller adds where files are and who is told.
func (c *Config) Cluster() (jetstream.Config, error) {
	e := &c.Engine
	out := jetstream.Config{
		Name: e.Name, Shards: e.Shards, Replicas: e.Replicas, MaxBytes: e.MaxBytes, LeaseTime: e.LeaseTime,
		Credentials: e.Credentials, NKeySeed: e.NKeySeed, SystemCredentials: e.SystemCredentials,
		MemberName: e.Member, SecondPlace: e.SecondPlace,
	}
	urls := make([]string, len(e.NATS))
	var errs []error
	for i, s := range e.NATS {
		u, err := resolveAddress(s, c.secrets)
		if err != nil {
			errs = append(errs, fmt.Errorf("engine.nats: %w", err))
		}
		urls[i] = u.Reveal()
	}
	out.URL = strings.Join(urls, ",")
	for _, v := range []struct {
		name string
		text *template.SecretText
		to   *string
	}{
		{"user", e.User, &out.User}, {"password", e.Password, &out.Password}, {"token", e.Token, &out.Token},
		{"system-user", e.SystemUser, &out.SystemUser}, {"system-password", e.SystemPassword, &out.SystemPassword},
	} {
		if v.text == nil {
			continue
		}
		value, err := v.text.Resolve(c.secrets)
		if err != nil {
			errs = append(errs, fmt.Errorf("engine.%s: %w", v.name, err))
		}
		*v.to = value.Reveal()
	}
	var err error
	if out.TLS, err = e.TLS.config(); err != nil {
		errs = append(errs, fmt.Errorf("engine.tls: %w", err))
	}
	return out, errors.Join(errs...)
}

// config returns how connections are made, nil if the address says it all.
func (t TLS) config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil //nolint:nilnil // there is nothing to say
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: there is no certificate in %s", t.CA)
		}
	}
	if t.Cert == "" {
		return c, nil
	}
	if _, err := tls.LoadX509KeyPair(t.Cert, t.Key); err != nil {
		return nil, fmt.Errorf("cert, key: %w", err)
	}
	// Read for each connection: it may have been renewed.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		return &pair, err
	}
	return c, nil
}
