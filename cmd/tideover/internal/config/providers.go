package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/secret"
)

// Provider is a remote API that the gateway and steps use. Its Spec has no keys and no
// headers, because they may be secret; [Provider.Resolve] adds them.
type Provider struct {
	gateway.Spec
	Auth    []ProviderKey          // if empty and not Keyless, clients send their own credentials
	Headers []template.NamedSecret // set on every request, sorted by name
}

// ProviderKey is one of the keys of a provider.
type ProviderKey struct {
	template.NamedSecret
	Account string // account whose limit the key shares with sessions, steps and other keys; "" for none
}

// ProviderNames returns the names of the providers in the order of the file.
func (c *Config) ProviderNames() []string { return c.providers }

// ProviderSpecs returns all providers with their secrets, in the order of the file.
func (c *Config) ProviderSpecs() ([]gateway.Spec, error) {
	return resolveProviders(c.providers, c.Providers, c.secrets)
}

// resolveProviders returns the named providers with the values of their secrets.
func resolveProviders(names []string, providers map[string]*Provider, secrets secret.Resolver) ([]gateway.Spec, error) {
	var errs []error
	specs := make([]gateway.Spec, 0, len(names))
	for _, name := range names {
		s, err := providers[name].Resolve(secrets)
		specs, errs = append(specs, s), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return specs, nil
}

// Resolve returns the provider with the current values of its keys and headers.
func (p *Provider) Resolve(r secret.Resolver) (gateway.Spec, error) {
	s := p.Spec
	if s.BaseURL != nil {
		base := *s.BaseURL
		s.BaseURL = &base
	}
	s.Repeatable, s.Fallback = slices.Clone(s.Repeatable), slices.Clone(s.Fallback)
	s.ForwardHeaders, s.ForwardQuery = slices.Clone(s.ForwardHeaders), slices.Clone(s.ForwardQuery)
	var errs []error
	resolve := func(key string, n template.NamedSecret) gateway.Secret {
		v, err := sendable(n.Value, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("provider %q: %s: %s: %w", p.Name, key, n.Name, err))
		}
		return gateway.NewSecret(v.Reveal())
	}
	for _, k := range p.Auth {
		s.Keys = append(s.Keys, gateway.Key{Name: k.Name, Value: resolve("auth", k.NamedSecret), Account: k.Account})
	}
	for _, h := range p.Headers {
		s.Headers = append(s.Headers, gateway.Header{Name: h.Name, Value: resolve("headers", h)})
	}
	return s, errors.Join(errs...)
}

// sendable resolves a secret, and returns an error if its value can't be sent in a header.
func sendable(s *template.SecretText, r secret.Resolver) (secret.String, error) {
	v, err := s.Resolve(r)
	if err != nil {
		return v, err
	}
	if err := Sendable(v.Reveal()); err != nil {
		return v, fmt.Errorf("the value of %q %w", s, err)
	}
	return v, nil
}

// Sendable returns an error if the text can't be the value of a header.
func Sendable(text string) error {
	if strings.TrimSpace(text) != text || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("can't be sent in a header: it has a line break, or a space at the beginning or the end")
	}
	return nil
}

// providerDraft is a provider while it is read, with the data for checks that need all
// providers.
type providerDraft struct {
	*Provider
	at         place
	found      map[string]place // places of the keys that are present; nested keys are named rate.burst
	open       bool             // clients send their own credentials
	plainHTTP  bool             // secrets may be sent without TLS
	formatRead bool             // Format is known to be valid
	fallbacks  []place          // items of the list fallback
}

func newProviderDraft(name string, at place) *providerDraft {
	return &providerDraft{Provider: &Provider{Spec: gateway.Spec{Name: name}}, at: at, found: map[string]place{}}
}

// providerReader reads the section providers.
type providerReader struct {
	*sharedReader
	policies  *policyReader
	providers map[string]*Provider
	names     []string // in the order of the file
}

// section reads the section providers into r.providers.
func (r *providerReader) section(at place) {
	var drafts []*providerDraft
	at.EachName("provider", func(name string, at place) {
		d := r.provider(name, at)
		r.names = append(r.names, name)
		r.providers[name] = d.Provider
		drafts = append(drafts, d)
	})
	for _, d := range drafts {
		r.checkFallbacks(d, drafts)
	}
	r.checkTogether(at, drafts)
}

func (r *providerReader) schema() *jsonschema.Schema {
	return strictyaml.OrNull(strictyaml.Describe(r.providerKeys(newProviderDraft("", place{}))))
}

// provider reads an entry of the section and checks it by itself.
func (r *providerReader) provider(name string, at place) *providerDraft {
	if at.Node.Kind == strictyaml.KindNull { // an entry without keys uses the preset of its name
		at.Node = &strictyaml.Node{Kind: strictyaml.KindMap, Line: at.Node.Line, Column: at.Node.Column}
	}
	d := newProviderDraft(name, at)
	if d.read("", at, r.providerKeys(d)); !at.IsMap() {
		return d
	}
	d.open = !d.has("auth")
	if !d.has("preset") {
		d.Preset = gateway.Generic
		if slices.Contains(gateway.Presets, name) {
			d.Preset = name
		}
		at.RecordDefault("preset", d.Preset)
	}
	if d.Preset != "" {
		d.Spec = d.Fill()
		d.recordDefaults()
	}
	d.check(r.Secrets)
	d.formatRead = d.Preset != "" && !at.Document().HasProblem(at.Path()+".format")
	return d
}

// read reads a map and adds the places of its keys to d.found. inside is the prefix of
// their names there, such as "rate.".
func (d *providerDraft) read(inside string, at place, keys []key) {
	found, _ := strictyaml.Object(at, keys)
	for name, here := range found {
		d.found[inside+name] = here
	}
}

func (d *providerDraft) has(name string) bool { return d.found[name].Node != nil }

// readBaseURL reads the base URL of a provider. The URL is shown on pages, so it refuses
// references and credentials.
func readBaseURL(at place) *url.URL {
	s, ok := at.Text()
	if !ok {
		return nil
	}
	if literal, found := template.URLSecret(s); found {
		at.Refuse(literal, "a secret must not be in the file; set credentials in auth")
		return nil
	}
	msg := steps.URLProblem(s)
	u, err := url.Parse(s)
	switch {
	case strings.Contains(s, "${") || strings.Contains(s, "{{"):
		at.Bad("%q has a reference or a template, which can't be used here: the URL is shown in many places", s)
		return nil
	case msg != "" || err != nil:
	case u.User != nil:
		msg = "has a user in it; credentials belong in auth"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		msg = "has a query or a fragment; want only a host and a path, and set credentials in auth"
	}
	if msg == "" {
		at.Record(s)
		return u
	}
	if plain := plainURL(s); plain != s {
		at.Refuse(s, fmt.Sprintf("%q %s", plain, msg))
	} else {
		at.Bad("%q %s", s, msg)
	}
	return nil
}

// plainURL masks the parts of a URL that may be a secret: the user and everything after
// the path. The URL need not be valid.
func plainURL(s string) string {
	if i := strings.IndexAny(s, "?#"); i >= 0 {
		s = s[:i+1] + secret.Mask
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return s
	}
	authority, path, more := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		authority = secret.Mask + authority[i:]
	}
	if more {
		path = "/" + path
	}
	return scheme + "://" + authority + path
}
