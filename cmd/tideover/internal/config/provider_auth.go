package config

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/oneline"
)

// noAuth is the value of auth with which no credentials are sent.
const noAuth = "none"

// auth reads the credentials of a provider: a reference, a list of keys, or noAuth.
func (r *providerReader) auth(at place, d *providerDraft) {
	switch n := at.Node; {
	case n.IsScalar() && n.Text == noAuth:
		d.Keyless = true
		at.Record(noAuth)
	case n.Kind == strictyaml.KindNull, n.IsScalar() && n.Text == "", n.Kind == strictyaml.KindList && len(n.Items) == 0:
		at.Bad("the key is missing; write none to send no credentials, or leave auth out if clients send their own")
	case n.Kind == strictyaml.KindMap:
		at.Bad("a map, where a reference or a list is expected; put [ ] around it")
	case n.Kind == strictyaml.KindList:
		for i := range n.Items {
			r.authKey(at.Index(i), fmt.Sprintf("key-%d", i+1), d)
		}
	default:
		r.addKey(at, at, "key-1", "", d)
	}
}

// keyDraft is an item of a list of credentials while it is read.
type keyDraft struct {
	name, key place
	account   string
}

// authKey reads an item of the list auth: a reference, or a map with name, key and
// account. name is the name of a key that has none.
func (r *providerReader) authKey(at place, name string, d *providerDraft) {
	switch {
	case at.Node.Kind == strictyaml.KindText && at.Node.Text == noAuth:
		at.Bad("none can't be in a list; write auth: none")
		return
	case at.Node.Kind != strictyaml.KindMap:
		r.addKey(at, at, name, "", d)
		return
	}
	var k keyDraft
	if strictyaml.Object(at, authKeys(&k)); k.key.Node == nil {
		return
	}
	if k.name.Node == nil {
		r.addKey(at, k.key, name, k.account, d)
		return
	}
	if name = strictyaml.ReadName(k.name, "key"); name != "" {
		r.addKey(k.name, k.key, name, k.account, d)
	}
}

// placeOf returns at. It is the read function of keys whose value is read later.
func placeOf(at place) place { return at }

func authKeys(k *keyDraft) []key {
	return []key{
		strictyaml.Field(&k.name, "name", "", strictyaml.NameSchema, placeOf,
			"Name of the key on the page and in metrics. Default: key-1, key-2 and so on."),
		strictyaml.Required(strictyaml.Field(&k.key, "key", "", aloneSchema, placeOf,
			"The key, as a reference: ${env:NAME} or ${file:path}.")),
		strictyaml.Field(&k.account, "account", "", strictyaml.NameSchema, readSharedAccount,
			"Account whose limit the key shares with sessions, steps and other keys. Default: none."),
	}
}

// addKey reads the key at the place at and adds it to the provider. named is the place of
// its name, for the message about a name that is used twice.
func (r *providerReader) addKey(named, at place, name, account string, d *providerDraft) {
	s := r.referenceAlone(at)
	switch {
	case s == nil:
	case slices.ContainsFunc(d.Auth, func(k ProviderKey) bool { return k.Value.String() == s.String() }):
		at.Bad("%s is listed twice", s)
	case slices.ContainsFunc(d.Auth, func(k ProviderKey) bool { return k.Name == name }):
		named.Bad("the name %q is already used by another key", name)
	default:
		d.Auth = append(d.Auth, ProviderKey{template.NamedSecret{Name: name, Value: s}, account})
	}
}

// referenceAlone reads a secret that must consist of one reference, and checks that its
// current value can be sent in a header.
func (r *providerReader) referenceAlone(at place) *template.SecretText {
	s := r.Secret(at)
	if s == nil {
		return nil
	}
	if s.String() != s.Refs()[0].String() {
		at.Refuse(s.String(), "expected a reference and nothing else; the word before the key is set by auth-scheme")
		return nil
	}
	if _, err := sendable(s, r.Secrets); err != nil {
		at.Bad("%s", oneline.Error(err))
		return nil
	}
	return s
}

// providerHeaders reads the headers that are set on every request.
func (r *providerReader) providerHeaders(at place) []template.NamedSecret {
	list := r.SecretMap(at, providerHeaderNames())
	for _, h := range list {
		if _, err := sendable(h.Value, r.Secrets); err != nil {
			at.Child(h.Name, at.Node.Get(h.Name)).Bad("%s", oneline.Error(err))
		}
	}
	return list
}

// gatewayHeaders are the headers that the gateway sets itself.
var gatewayHeaders = append(slices.Clone(clientHeaders), "Trailer", "Host")

// providerHeaderNames is headerNames for headers of requests that the gateway sends.
func providerHeaderNames() func(name string) string {
	wrong := headerNames()
	return func(name string) string {
		if slices.Contains(gatewayHeaders, http.CanonicalHeaderKey(name)) {
			return "is set by the gateway itself"
		}
		return wrong(name)
	}
}

func gatewayHeaderSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: headerName.String(), Not: &jsonschema.Schema{Pattern: anyCase(gatewayHeaders)}}
}

func providerHeadersSchema() *jsonschema.Schema {
	s := envSchema()
	s.PropertyNames = gatewayHeaderSchema()
	return s
}

// aloneSchema accepts a text that consists of one reference.
var aloneSchema = strictyaml.PatternSchema(`^\$\{(env|file):[^{}]+\}$`)

func authSchema() *jsonschema.Schema {
	item := anyOf(aloneSchema(), strictyaml.Describe(authKeys(new(keyDraft))))
	list := &jsonschema.Schema{Type: "array", MinItems: new(1), Items: item}
	return anyOf(strictyaml.WordSchema(noAuth)(), aloneSchema(), list)
}
