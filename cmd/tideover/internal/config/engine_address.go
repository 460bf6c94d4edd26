package config

import (
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/oneline"
)

const noAddress = "the address is missing; want one like nats://host:4222"

// natsServers reads the addresses of the NATS servers: a list, or one text with commas.
func (r *engineReader) natsServers(at place) (list []*template.SecretText) {
	parts := at.Node.Items
	if at.Node.Kind != strictyaml.KindList {
		text, ok := at.Text()
		if !ok {
			return nil
		}
		if name, ok := strings.CutPrefix(at.Node.Origin, "env "); ok && strings.Contains(text, "@") && !template.IsRef(text) {
			// The variable may contain a password: use a reference to it instead of its value.
			text = fmt.Sprintf("${env:%s}", name)
		}
		for part := range strings.SplitSeq(text, ",") {
			n := *at.Node
			n.Kind, n.Text = strictyaml.KindText, strings.TrimSpace(part)
			parts = append(parts, &n)
		}
	}
	var shown []string
	for _, n := range parts {
		if s := r.natsServer(at.WithNode(n)); s != nil {
			list, shown = append(list, s), append(shown, s.String())
		}
	}
	switch {
	case len(parts) == 0:
		at.Bad(noAddress)
	case len(list) == len(parts):
		at.Record(strings.Join(shown, ","))
	case strings.Contains(at.Node.Text, "@"): // a comma in a password splits it, so that each part is checked alone
		at.Hide()
	}
	return list
}

// natsServer reads one address, and checks it with the current values of its references.
func (r *engineReader) natsServer(at place) *template.SecretText {
	src, ok := at.Text()
	if !ok {
		return nil
	}
	if src == "" {
		at.Bad(noAddress)
		return nil
	}
	if literal, found := addressSecret(src); found {
		at.Hide()
		at.Refuse(literal, "a secret must not be in the file; write a reference, as in nats://user:${env:PASSWORD}@host:4222, or use user and password, token or credentials")
		return nil
	}
	if strings.Contains(src, "{{") {
		at.Bad("templates can't be used here")
		return nil
	}
	t, ok := r.Text(at, "nats", template.WithRefs, template.Fields{})
	if !ok {
		return nil
	}
	s := template.NewSecretText(t, r.Dir)
	out, err := cluster.ResolveAddress(s, r.Secrets)
	var wrong string
	if err != nil {
		wrong = oneline.Text(err.Error())
	} else if wrong = wrongAddress(out.Reveal()); wrong == "" {
		return s
	}
	if plainAddress.MatchString(src) || template.IsRef(src) {
		at.Bad("%q %s", src, wrong)
	} else { // it may contain a misplaced password
		at.Hide()
		at.Refuse(src, "this "+wrong)
	}
	return nil
}

// wrongAddress returns what is wrong with one or several addresses, "" if they are valid.
// The text has no references. Because it may contain a password, the result quotes only
// the scheme.
func wrongAddress(text string) string {
	if err := (jetstream.Config{URL: text}).Validate(); err != nil {
		return strings.TrimPrefix(strings.TrimPrefix(oneline.Text(err.Error()), "url: number 1 "), "url: ")
	}
	for part := range strings.SplitSeq(text, ",") {
		u, err := cluster.ParseAddress(part)
		if err != nil || u.User != nil && u.User.String() == "" {
			return "is not an address like nats://host:4222"
		}
		if _, msg := parseHost(u.Hostname()); msg != "" {
			return "is not an address like nats://host:4222"
		}
	}
	return ""
}

// addresses checks the rules that concern all addresses: schemes that can't be mixed, and
// credentials in an address together with another way to authenticate.
func (r *engineReader) addresses(found map[string]place, e *cluster.Config) {
	var users, web, plain bool
	for _, s := range e.NATS {
		out, err := cluster.ResolveAddress(s, r.Secrets)
		if err != nil {
			continue // natsServer has refused it
		}
		for part := range strings.SplitSeq(out.Reveal(), ",") {
			u, err := cluster.ParseAddress(part)
			if err != nil {
				continue
			}
			isWeb := strings.HasPrefix(u.Scheme, "ws")
			users, web, plain = users || u.User != nil, web || isWeb, plain || !isWeb
		}
	}
	if web && plain {
		found["nats"].Bad("ws:// and wss:// can't be mixed with nats:// and tls://")
	}
	for _, way := range []string{"credentials", "nkey-seed", "user", "token"} {
		if here, ok := found[way]; ok && users {
			here.Bad("can't be combined with credentials in an address of nats; use one way to authenticate")
		}
	}
}

// plainAddress matches addresses that can't contain a password.
var plainAddress = lazyregexp.New(`^([a-z]+://)?[A-Za-z0-9.-]*(:[0-9]*)?$`)

// addressSecret returns a secret that is written out in an address: a password, or a user
// without a password, which NATS uses as a token.
func addressSecret(src string) (literal string, found bool) {
	if l, found := strictyaml.KnownSecret(src); found {
		return l, true
	}
	scheme, user, _ := cluster.SplitAddress(src)
	name, _, both := strings.Cut(cluster.MaskReferences(user), ":")
	if both {
		user = user[len(name)+1:]
	}
	return user, user != "" && !template.HasRef(user) && !template.IsRef(scheme)
}

func addressesSchema() *jsonschema.Schema {
	one := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", MinLength: new(1)} }
	return anyOf(one(), &jsonschema.Schema{Type: "array", MinItems: new(1), Items: one()})
}
