package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/oneline"
)

// fallbacks checks the providers that take over for one, when all are known.
func (r *providerReader) fallbacks(d *providerDraft, all []*providerDraft) {
	seen := map[string]bool{}
	for _, at := range d.fallbacks {
		name := at.Node.Text
		i := slices.IndexFunc(all, func(o *providerDraft) bool { return o.Name == name })
		switch {
		case seen[name]:
			at.Bad("%q is given already", name)
		case name == d.Name:
			at.Bad("provider %q can't take over from itself", name)
		case i < 0:
			at.Bad("%s", r.noProvider(name))
		default:
			r.fallback(at, d, all[i])
		}
		seen[name] = true
	}
}

// fallback checks one of them. What is wrong with its own keys has been said.
func (r *providerReader) fallback(at strictyaml.Place, d, o *providerDraft) {
	switch {
	case !d.formatRead || !o.formatRead:
	case d.Format == "":
		at.Bad("provider %q does not say what its wire format is, which %q must share; say so in both, such as format: mine; any word will do", d.Name, o.Name)
	case o.Format == "":
		at.Bad("provider %q does not say what its wire format is, and %q speaks %q; if it does too, say so with format: %s", o.Name, d.Name, d.Format, d.Format)
	case d.Format != o.Format:
		at.Bad("provider %q speaks %q, and %q speaks %q; there is no translation", d.Name, d.Format, o.Name, o.Format)
	}
	if o.open {
		at.Bad("provider %q has no credentials of its own, and those of callers are not sent to another provider; give it auth, or auth: none", o.Name)
	}
}

// noProvider says that there is no provider of the name, and which may be meant.
func (r *providerReader) noProvider(name string) string {
	names := r.names
	if near := strictyaml.Nearest(name, names); near != "" {
		return fmt.Sprintf("there is no provider %q; did you mean %q?", name, near)
	}
	const most = 10
	return fmt.Sprintf("there is no provider %q in the section providers; there are %s",
		name, cmp.Or(strings.Join(names[:min(len(names), most)], ", "), "none"))
}

// together has the gateway look at all providers, once nothing is wrong with any.
func (r *providerReader) together(at strictyaml.Place, drafts []*providerDraft) {
	if r.doc.HasProblem(at.Path()) {
		return
	}
	specs, err := resolveProviders(r.names, r.providers, r.Secrets)
	if err != nil { // the secrets have just been there
		at.Bad("%s", oneline.Error(err))
		return
	}
	for _, err := range strictyaml.JoinedErrors(gateway.ValidateAll(specs)) {
		f, _ := errors.AsType[*gateway.FieldError](err)
		i := slices.IndexFunc(drafts, func(d *providerDraft) bool { return f != nil && d.Name == f.Provider })
		if i < 0 {
			at.Bad("%s", oneline.Error(err))
			continue
		}
		r.providerProblem(drafts[i], err)
	}
}
