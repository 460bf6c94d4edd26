package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/httpheader"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/limit"
)

// FieldError is a problem of a [Spec].
type FieldError struct {
	Provider string // name of the provider
	Field    string // the key in the configuration file, such as rate.requests; "" means the provider as a whole
	Err      error
}

// Error names the provider and the field.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("provider %q: %v", e.Provider, e.Err)
	}
	return fmt.Sprintf("provider %q: %s: %v", e.Provider, e.Field, e.Err)
}

// Unwrap returns the problem.
func (e *FieldError) Unwrap() error { return e.Err }

// checker collects the problems of one spec.
type checker struct {
	name string
	errs []error
}

func (c *checker) bad(field, format string, args ...any) {
	c.add(field, fmt.Errorf(format, args...))
}

func (c *checker) badIf(wrong bool, field, format string, args ...any) {
	if wrong {
		c.bad(field, format, args...)
	}
}

// add records an error, or each error of a joined one.
func (c *checker) add(field string, err error) {
	if err == nil {
		return
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			c.add(field, e)
		}
		return
	}
	c.errs = append(c.errs, &FieldError{Provider: c.name, Field: field, Err: err})
}

var (
	validName   = lazyregexp.New(`^[a-z0-9][a-z0-9_.-]{0,62}$`)
	validMethod = lazyregexp.New(`^[A-Z]+$`)
)

// Validate returns all problems of the spec alone, each a [*FieldError]. Defaults must
// have been filled in; see [Spec.Fill].
func (s Spec) Validate() error {
	c := &checker{name: s.Name}
	c.badIf(!validName.MatchString(s.Name), "",
		"the name is not 1 to 63 lower-case letters, digits, hyphens, underscores and dots, the first a letter or digit")
	if !slices.Contains(Presets, s.Preset) {
		c.bad("preset", "%q is none of %s", s.Preset, strings.Join(Presets, ", "))
	} else if s.Preset != Generic && s.Format != s.Preset {
		c.bad("format", "%q is not the format of the preset %s; another format requires the preset %s", s.Format, s.Preset, Generic)
	}
	c.address(&s)
	c.credentials(&s)
	c.forwarding(&s)
	c.retries(&s)
	c.limits(&s)
	return errors.Join(c.errs...)
}

func (c *checker) address(s *Spec) {
	switch u := s.BaseURL; {
	case u == nil:
		c.bad("base-url", "is missing")
	case u.Scheme != "http" && u.Scheme != "https":
		c.bad("base-url", "does not start with http:// or https://")
	case u.Hostname() == "":
		c.bad("base-url", "has no host")
	case s.H2C && u.Scheme != "http":
		c.bad("h2c", "is for a base-url that begins with http://; over https HTTP/2 is negotiated")
	case u.User != nil:
		c.bad("base-url", "has a user in it; credentials belong in auth")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || hasDots(u.EscapedPath()):
		c.bad("base-url", "has more than a path behind the host; requests go below it")
	}
}

func (c *checker) credentials(s *Spec) {
	c.badIf(s.Keyless && len(s.Keys) > 0, "auth", "a provider that gets no credentials can't have keys")
	c.badIf(len(s.Keys) > health.MaxTargets, "auth",
		"%d keys are too many; at most %d are allowed", len(s.Keys), health.MaxTargets)
	seen := map[string]bool{}
	for i, k := range s.Keys {
		switch {
		case !validName.MatchString(k.Name):
			c.bad("auth", "key %d: %q is not a valid name for a key", i+1, k.Name)
		case seen[k.Name]:
			c.bad("auth", "there are two keys %q", k.Name)
		case k.Value.IsZero():
			c.bad("auth", "key %q is empty", k.Name)
		case !sendable(k.Value.Reveal()):
			c.bad("auth", "the value of key %q can't be sent in a header", k.Name)
		case k.Account != "" && !validName.MatchString(k.Account):
			c.bad("auth", "key %q: %q is not a valid name for an account", k.Name, k.Account)
		}
		seen[k.Name] = true
	}
	c.badIf(len(s.Keys) > 0 && !httpheader.IsToken(s.AuthHeader), "auth-header",
		"%q is not the name of a header", s.AuthHeader)
	c.badIf(s.AuthScheme != "" && !httpheader.IsToken(s.AuthScheme), "auth-scheme",
		"%q is not the name of a scheme, such as Bearer", s.AuthScheme)
	for _, h := range s.Headers {
		switch {
		case !httpheader.IsToken(h.Name):
			c.bad("headers", "%q is not the name of a header", h.Name)
		case slices.Contains(ownHeaders, http.CanonicalHeaderKey(h.Name)):
			c.bad("headers", "%s is set by the HTTP client and can't be configured", h.Name)
		case !sendable(h.Value.Reveal()):
			c.bad("headers", "the value of %s can't be sent in a header", h.Name)
		}
	}
}

// forwarding checks which headers and parameters of callers this provider may get as a
// fallback. The operator may add names whose meaning we do not know, but no names that
// carry credentials.
func (c *checker) forwarding(s *Spec) {
	for _, name := range s.ForwardHeaders {
		switch canonical := http.CanonicalHeaderKey(name); {
		case !httpheader.IsToken(name):
			c.bad("forward-headers", "%q is not the name of a header", name)
		case isCredential(canonical), canonical == protocolHeader, canonical == http.CanonicalHeaderKey(s.AuthHeader):
			c.bad("forward-headers", "%s carries credentials of callers, which are sent to no other provider; give the provider its own with auth or headers", name)
		}
	}
	for _, name := range s.ForwardQuery {
		switch plain := parameterName(name); {
		case plain == "" || strings.ContainsAny(name, "&;=#? "):
			c.bad("forward-query", "%q is not the name of a query parameter", name)
		case secret.IsQuery(plain) && plain != "code" && plain != "pin":
			c.bad("forward-query", "%s carries credentials of callers, which are sent to no other provider; give the provider its own with auth or headers", name)
		}
	}
}

// ownHeaders are headers that net/http sets itself.
var ownHeaders = []string{"Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Host"}

// sendable reports whether the text can be the value of a header.
func sendable(s string) bool {
	return strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func (c *checker) retries(s *Spec) {
	c.add("policy", s.Policy.Validate())
	c.add("policy", s.Policy.Refuse("the gateway", "reset-after"))
	c.badIf(!slices.Contains([]string{PostsNever, PostsAnswered, PostsUnanswered}, s.RetryPosts), "retry-posts",
		"%q is none of %s, %s and %s", s.RetryPosts, PostsNever, PostsAnswered, PostsUnanswered)
	for _, r := range s.Repeatable {
		c.badIf(!validMethod.MatchString(r.Method) || !strings.HasPrefix(r.Path, "/"), "repeatable",
			"%q is not a method and a path such as POST /v1/search", r.Method+" "+r.Path)
	}
	c.add("breaker", s.Breaker.Validate())
	c.badIf(s.OpenFor < 0, "breaker.open-for", "%v is negative", s.OpenFor)
	c.badIf(s.FallbackAfter < 1, "fallback-after", "%d is below 1", s.FallbackAfter)
}

func (c *checker) limits(s *Spec) {
	if s.Rate != (limit.Frequency{}) {
		c.add("rate.requests", limit.RateConfig{Rate: s.Rate, Burst: max(s.Burst, 0)}.Validate())
	} else if s.Burst != 0 {
		c.bad("rate.burst", "requires rate.requests")
	}
	c.badIf(s.Burst < 0, "rate.burst", "%d is negative", s.Burst)
	c.badIf(s.Concurrent < 0, "rate.concurrent", "%d is negative", s.Concurrent)
	c.badIf(s.Queue < 1, "rate.queue", "%d is below 1", s.Queue)
	const none = -1
	c.badIf(s.StreamHold < none, "stream.hold", "%v is negative", s.StreamHold)
	c.badIf(s.StreamIdle < none, "stream.idle", "%v is negative", s.StreamIdle)
	c.badIf(s.MaxBody < none, "max-body", "%d is negative; -1 means no limit", s.MaxBody)
	c.add("priority", s.Priority.Validate())
}

// ValidateAll returns all problems of the specs, of each alone and of their combination,
// each a [*FieldError]. Defaults must have been filled in; see [Spec.Fill].
//
// The gateway does not use the fallbacks of a fallback, so two providers may be the
// fallback of each other.
func ValidateAll(specs []Spec) error {
	var errs []error
	byName := map[string]*Spec{}
	for i := range specs {
		s := &specs[i]
		if byName[s.Name] != nil {
			errs = append(errs, &FieldError{Provider: s.Name, Err: errors.New("the name is used twice")})
		}
		byName[s.Name] = s
		errs = append(errs, s.Validate())
	}
	for i := range specs {
		errs = append(errs, fallbacks(&specs[i], byName)...)
	}
	return errors.Join(errs...)
}

const unknownFormat = "the wire format of %q is not known; give it one with format"

// fallbacks checks the fallbacks of the provider.
func fallbacks(s *Spec, known map[string]*Spec) []error {
	c := &checker{name: s.Name}
	seen := map[string]bool{}
	for _, name := range s.Fallback {
		other := known[name]
		switch {
		case seen[name]:
			c.bad("fallback", "%q is listed twice", name)
		case name == s.Name:
			c.bad("fallback", "%q can't take over from itself", name)
		case other == nil:
			c.bad("fallback", "there is no provider %q", name)
		case s.Format == "":
			c.bad("fallback", unknownFormat, s.Name)
		case other.Format == "":
			c.bad("fallback", unknownFormat, name)
		case other.Format != s.Format:
			c.bad("fallback", "%q has the format %s and %q has the format %s; the gateway does not translate between formats", s.Name, s.Format, name, other.Format)
		case !other.ours():
			c.bad("fallback", "%q has no credentials of its own, and those of callers are not sent to another provider; give it auth, or auth: none", name)
		}
		seen[name] = true
	}
	return c.errs
}
