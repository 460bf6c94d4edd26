package config

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/internal/oneline"
)

// noAuth is the word for no credentials at all.
const noAuth = "none"

// auth reads the credentials: a reference, a list of them, or the word for none.
func (l *loader) auth(at place, d *providerDraft) {
	switch n := at.node; {
	case n.scalar() && n.text == noAuth:
		d.Keyless = true
		l.value(at, noAuth)
	case n.kind == nullKind, n.scalar() && n.text == "", n.kind == listKind && len(n.items) == 0:
		l.bad(at, "there is no key; write none to send no credentials, or leave auth out if callers bring their own")
	case n.kind == mapKind:
		l.bad(at, "a map, where a reference or a list is expected; put [ ] around it")
	case n.kind == listKind:
		for i := range n.items {
			l.authKey(at.index(i), fmt.Sprintf("key-%d", i+1), d)
		}
	default:
		l.addKey(at, at, "key-1", "", d)
	}
}

// keyDraft is an item of a list of credentials while it is read.
type keyDraft struct {
	name, key place
	account   string
}

// authKey reads an item of the list.
func (l *loader) authKey(at place, name string, d *providerDraft) {
	switch {
	case at.node.kind == stringKind && at.node.text == noAuth:
		l.bad(at, "none stands alone, and not in a list")
		return
	case at.node.kind != mapKind:
		l.addKey(at, at, name, "", d)
		return
	}
	var k keyDraft
	if object(l, at, authKeys, &k); k.key.node == nil {
		return
	}
	if k.name.node == nil {
		l.addKey(at, k.key, name, k.account, d)
		return
	}
	if name, ok := l.scalar(k.name); !ok {
		return
	} else if !validName.MatchString(name) {
		l.bad(k.name, "%q is not a name for a key; %s", name, nameRule)
	} else {
		l.value(k.name, name)
		l.addKey(k.name, k.key, name, k.account, d)
	}
}

var authKeys = []key[keyDraft]{
	{
		name: "name", doc: "How the key is called on the page and in metrics; key-1, key-2 and so on unless said.", schema: nameSchema,
		set: func(_ *loader, at place, k *keyDraft) { k.name = at },
	},
	{
		name: "key", required: true, doc: "The key, as a reference: ${env:NAME} or ${file:path}.", schema: aloneSchema,
		set: func(_ *loader, at place, k *keyDraft) { k.key = at },
	},
	{
		name: "account", doc: "The account whose limit the key shares with sessions, steps and other keys; none unless said.", schema: nameSchema,
		set: func(l *loader, at place, k *keyDraft) {
			if k.account = l.account(at); k.account == account.None {
				k.account = ""
			}
		},
	},
}

// addKey reads a key and adds it under its name, which stands at another place.
func (l *loader) addKey(named, at place, name, account string, d *providerDraft) {
	s := l.referenceAlone(at)
	switch {
	case s == nil:
	case slices.ContainsFunc(d.Auth, func(k ProviderKey) bool { return k.Value.String() == s.String() }):
		l.bad(at, "%s is given already", s)
	case slices.ContainsFunc(d.Auth, func(k ProviderKey) bool { return k.Name == name }):
		l.bad(named, "there is a key %q already", name)
	default:
		d.Auth = append(d.Auth, ProviderKey{NamedSecret{name, s}, account})
	}
}

// referenceAlone reads a secret that is a reference and nothing else, and checks
// that it can be sent as it is at the moment.
func (l *loader) referenceAlone(at place) *SecretText {
	s := l.secretText(at)
	if s == nil {
		return nil
	}
	if s.text.src != s.text.refs[0].String() {
		l.refuse(at, s.text.src, "there is more than a reference; write it alone: what stands before the key is auth-scheme")
		return nil
	}
	if _, err := sendable(s, l.cfg.secrets); err != nil {
		l.bad(at, "%s", oneline.Error(err))
		return nil
	}
	return s
}

// providerHeaders reads the headers that are set on every request.
func (l *loader) providerHeaders(at place) []NamedSecret {
	list := l.namedSecrets(at, providerHeaderNames())
	for _, h := range list {
		if _, err := sendable(h.Value, l.cfg.secrets); err != nil {
			l.bad(at.child(h.Name, at.node.get(h.Name)), "%s", oneline.Error(err))
		}
	}
	return list
}

// gatewayHeaders are those that the gateway sets itself.
var gatewayHeaders = append(slices.Clone(clientHeaders), "Trailer", "Host")

// providerHeaderNames is headerNames for what the gateway sends.
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

const alonePattern = `^\$\{(env|file):[^{}]+\}$`

// aloneSchema is for a reference and nothing else.
func aloneSchema() *jsonschema.Schema {
	s := textSchema()
	s.Pattern = alonePattern
	return s
}

func authSchema() *jsonschema.Schema {
	item := &jsonschema.Schema{AnyOf: []*jsonschema.Schema{aloneSchema(), describe(authKeys)}}
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		enum(noAuth), aloneSchema(), {Type: "array", MinItems: new(1), Items: item},
	}}
}
