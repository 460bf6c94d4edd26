package config

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/oneline"
)

// checkProvider checks what is to be said of a provider by itself.
func (r *providerReader) checkProvider(d *providerDraft) {
	r.keysWithout(d)
	r.inTheClear(d)
	r.keyHeader(d)
	if d.Preset == "" {
		return // the gateway could say nothing more
	}
	spec, _ := d.Resolve(r.Secrets) // what is wrong with secrets has been said
	for _, err := range strictyaml.JoinedErrors(spec.Validate()) {
		r.providerProblem(d, err)
	}
}

// providerProblem records what the gateway finds wrong, where it stands. Of what
// could not be read it has nothing new to say.
func (r *providerReader) providerProblem(d *providerDraft, err error) {
	f, ok := errors.AsType[*gateway.FieldError](err)
	if !ok {
		d.at.Bad("%s", oneline.Error(err))
		return
	}
	switch here, found := d.found[f.Field]; {
	case found && !r.doc.HasProblem(here.Path()):
		here.Bad("%s", oneline.Error(f.Err))
	case found, f.Field == "" && !strictyaml.ValidName(d.Name):
	case f.Field == "":
		d.at.Bad("%s", oneline.Error(f.Err))
	case f.Field == "base-url":
		d.at.Bad("%q is missing; the preset %s has none of its own", f.Field, d.Preset)
	default:
		d.at.Bad("%s: %s", f.Field, oneline.Error(f.Err))
	}
}

// keysWithout refuses keys that are nothing without others.
func (r *providerReader) keysWithout(d *providerDraft) {
	for _, c := range []struct {
		key    string
		needed bool
		why    string
	}{
		{"auth-scheme", len(d.Auth) > 0 || r.doc.HasProblem(d.at.Path()+".auth"), "there is no key in auth that it could stand before"},
		{"breaker.slow-rate", d.has("breaker.slow"), "there is no breaker.slow, which says what is slow"},
		{"fallback-after", len(d.fallbacks) > 0 || r.doc.HasProblem(d.at.Path()+".fallback"), "there is no fallback that could take over"},
	} {
		if d.has(c.key) && !c.needed && !r.doc.HasProblem(d.found[c.key].Path()) {
			d.found[c.key].Bad("%s", c.why)
		}
	}
}

// inTheClear refuses to send secrets over a network without encryption, also those
// that callers bring.
func (r *providerReader) inTheClear(d *providerDraft) {
	if d.BaseURL == nil || d.BaseURL.Scheme != "http" || loopbackHost(d.BaseURL.Hostname()) || d.plainHTTP {
		return
	}
	what, instead := "", "a provider on this machine, or plain-http: true if the network is safe"
	if len(d.Auth) > 0 {
		what = "the key"
	}
	for _, h := range d.Headers {
		if len(h.Value.Refs()) > 0 && what == "" {
			what = fmt.Sprintf("the secret of the header %s", h.Name)
		}
	}
	if d.open && what == "" {
		what, instead = "there is no auth, so callers bring their own credentials, which", "a provider on this machine, auth: none to send no credentials, or plain-http: true if the network is safe"
	}
	if what != "" {
		d.found["base-url"].Bad("%s would cross the network in the clear; use https, %s", what, instead)
	}
}

// keyHeader refuses a header that would take the place of the key.
func (r *providerReader) keyHeader(d *providerDraft) {
	for _, h := range d.Headers {
		if len(d.Auth) > 0 && http.CanonicalHeaderKey(h.Name) == http.CanonicalHeaderKey(d.AuthHeader) {
			at := d.found["headers"]
			at.Child(h.Name, at.Node.Get(h.Name)).Bad("%s is the header in which the key is sent", h.Name)
		}
	}
}
