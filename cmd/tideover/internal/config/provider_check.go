package config

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

// check checks the keys of one provider against each other. checkFallbacks and
// checkTogether check it against the others.
func (d *providerDraft) check(secrets secret.Resolver) {
	d.checkDependentKeys()
	d.checkPlainHTTP()
	d.checkKeyHeader()
	if d.Preset == "" {
		return // an unknown preset is already recorded as a problem
	}
	spec, _ := d.Resolve(secrets) // problems with secrets are recorded already
	for _, err := range strictyaml.JoinedErrors(spec.Validate()) {
		d.addProblem(err)
	}
}

// addProblem records a problem that the gateway has found at the place of the key, unless
// the key already has a problem.
func (d *providerDraft) addProblem(err error) {
	f, ok := errors.AsType[*gateway.FieldError](err)
	if !ok {
		d.at.Bad("%s", oneline.Error(err))
		return
	}
	switch here, found := d.found[f.Field]; {
	case found && !d.at.Document().HasProblem(here.Path()):
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

// checkDependentKeys refuses keys that have no effect without others.
func (d *providerDraft) checkDependentKeys() {
	for _, c := range []struct {
		key    string
		needed bool
		why    string
	}{
		{"auth-scheme", len(d.Auth) > 0 || d.at.Document().HasProblem(d.at.Path()+".auth"), "requires a key in auth"},
		{"breaker.slow-rate", d.has("breaker.slow"), "requires breaker.slow"},
		{"fallback-after", len(d.fallbacks) > 0 || d.at.Document().HasProblem(d.at.Path()+".fallback"), "requires fallback"},
	} {
		if d.has(c.key) && !c.needed && !d.at.Document().HasProblem(d.found[c.key].Path()) {
			d.found[c.key].Bad("%s", c.why)
		}
	}
}

// checkPlainHTTP refuses an http:// URL on another machine if secrets of the file or of
// clients would be sent to it, unless plain-http allows it.
func (d *providerDraft) checkPlainHTTP() {
	if d.BaseURL == nil || d.BaseURL.Scheme != "http" || hosts.IsLoopback(d.BaseURL.Hostname()) || d.plainHTTP {
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
		what, instead = "auth is not set, so credentials of clients", "a provider on this machine, auth: none to send no credentials, or plain-http: true if the network is safe"
	}
	if what != "" {
		d.found["base-url"].Bad("%s would be sent unencrypted; use https, %s", what, instead)
	}
}

// checkKeyHeader refuses a header that would replace the key.
func (d *providerDraft) checkKeyHeader() {
	for _, h := range d.Headers {
		if len(d.Auth) > 0 && http.CanonicalHeaderKey(h.Name) == http.CanonicalHeaderKey(d.AuthHeader) {
			at := d.found["headers"]
			at.Child(h.Name, at.Node.Get(h.Name)).Bad("%s is the header in which the key is sent", h.Name)
		}
	}
}

// recordDefaults records the values of keys that are absent.
func (d *providerDraft) recordDefaults() {
	b, base := &d.Breaker, ""
	if d.BaseURL != nil {
		base = d.BaseURL.String()
	}
	for _, v := range []struct {
		key  string
		used bool
		text string
	}{
		{"base-url", base != "", base},
		{"format", d.Format != "", d.Format},
		{"auth-header", !d.Keyless, d.AuthHeader},
		{"auth-scheme", len(d.Auth) > 0 && d.AuthScheme != "", d.AuthScheme},
		{"policy", true, d.Policy.String()},
		{"retry-posts", true, d.RetryPosts},
		{"rate.queue", true, strconv.Itoa(d.Queue)},
		{"priority", true, d.Priority.String()},
		{"breaker.failures", true, strconv.FormatFloat(100*b.FailureRate, 'g', 6, 64) + "%"},
		{"breaker.window", b.WindowCalls == 0, textfmt.CompactDuration(b.Window)},
		{"breaker.of-last", b.WindowCalls == 0, strconv.Itoa(b.MinCalls)},
		{"breaker.consecutive", true, strconv.Itoa(b.ConsecutiveFailures)},
		{"breaker.slow-rate", b.SlowCall > 0, "80%"}, // the default of package breaker
		{"fallback-after", len(d.Fallback) > 0, strconv.Itoa(d.FallbackAfter)},
		{"stream.hold", true, textfmt.CompactDuration(d.StreamHold)},
		{"stream.idle", true, textfmt.CompactDuration(d.StreamIdle)},
		{"max-body", true, textfmt.FormatSize(d.MaxBody)},
	} {
		if v.used && !d.has(v.key) {
			d.at.RecordDefault(v.key, v.text)
		}
	}
}

// checkFallbacks checks the list fallback of a provider against all providers.
func (r *providerReader) checkFallbacks(d *providerDraft, all []*providerDraft) {
	seen := map[string]bool{}
	for _, at := range d.fallbacks {
		name := at.Node.Text
		i := slices.IndexFunc(all, func(o *providerDraft) bool { return o.Name == name })
		switch {
		case seen[name]:
			at.Bad("%q is listed twice", name)
		case name == d.Name:
			at.Bad("provider %q can't be its own fallback", name)
		case i < 0:
			at.Bad("%s", strictyaml.UnknownName("provider", name, r.names))
		default:
			checkFallback(at, d, all[i])
		}
		seen[name] = true
	}
}

// checkFallback checks that provider o can be a fallback for provider d. at is the place
// of o's name in the list fallback of d.
func checkFallback(at place, d, o *providerDraft) {
	switch {
	case !d.formatRead || !o.formatRead:
	case d.Format == "":
		at.Bad("the wire format of provider %q is unknown, and fallback %q must have the same; set the same format in both, such as format: mine (any word)", d.Name, o.Name)
	case o.Format == "":
		at.Bad("the wire format of provider %q is unknown, and %q has the format %q; if both are the same, set format: %s", o.Name, d.Name, d.Format, d.Format)
	case d.Format != o.Format:
		at.Bad("provider %q has the format %q, and %q has the format %q; formats are not translated", d.Name, d.Format, o.Name, o.Format)
	}
	if o.open {
		at.Bad("provider %q has no credentials, and credentials of clients are not sent to a fallback; set its auth, or auth: none", o.Name)
	}
}

// checkTogether validates all providers together by [gateway.ValidateAll], if none has a
// problem yet.
func (r *providerReader) checkTogether(at place, drafts []*providerDraft) {
	if at.Document().HasProblem(at.Path()) {
		return
	}
	specs, err := resolveProviders(r.names, r.providers, r.Secrets)
	if err != nil { // the secrets were resolved a moment ago
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
		drafts[i].addProblem(err)
	}
}
