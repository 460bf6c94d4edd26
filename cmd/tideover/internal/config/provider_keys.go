package config

import (
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/limit"
)

func boolSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} }

// providerKeys are the keys of a provider.
var providerKeys = located("", []key[providerDraft]{
	{
		name: "preset", doc: "What is known of the API: its address, where a key goes, what its failures mean. The provider's name if it is one of them, else generic.",
		schema: func() *jsonschema.Schema { return enum(gateway.Presets...) },
		set:    func(l *loader, at place, d *providerDraft) { d.Preset = l.word(at, gateway.Presets...) },
	},
	{
		name: "base-url", doc: "Requests go below it; that of the preset unless said, and needed for generic. It is shown to everybody: no references.", schema: textSchema,
		set: func(l *loader, at place, d *providerDraft) { d.BaseURL = l.baseURL(at) },
	},
	{
		name: "h2c", doc: "Whether HTTP/2 is spoken to a base-url that begins with http://, without TLS and without negotiation, as gRPC servers do.", schema: boolSchema,
		set: func(l *loader, at place, d *providerDraft) { d.H2C = l.truth(at) },
	},
	{
		name: "plain-http", doc: "Whether keys, secret headers and credentials of callers may be sent to a base-url that begins with http:// and is not on this machine. Anybody on the network can read them.", schema: boolSchema,
		set: func(l *loader, at place, d *providerDraft) { d.plainHTTP = l.truth(at) },
	},
	{
		name: "format", doc: "Name of the wire format of a generic provider. Fallbacks must have the same: there is no translation.", schema: nameSchema,
		set: func(l *loader, at place, d *providerDraft) {
			if s, ok := l.scalar(at); ok && !validName.MatchString(s) {
				l.bad(at, "%q is not a name for a format; %s", s, nameRule)
			} else if ok {
				d.Format = s
				l.value(at, s)
			}
		},
	},
	{
		name: "auth", doc: "The key, as a reference: ${env:NAME} or ${file:path}; several as a list, where each may also be a map with name, key and account; none for no credentials at all. Callers bring their own unless said.",
		schema: authSchema,
		set:    func(l *loader, at place, d *providerDraft) { l.auth(at, d) },
	},
	{
		name: "auth-header", doc: "Header in which the key is sent; the preset's unless said.",
		schema: gatewayHeaderSchema,
		set: func(l *loader, at place, d *providerDraft) {
			if s, ok := l.scalar(at); ok {
				if msg := providerHeaderNames()(s); msg != "" {
					l.bad(at, "%q %s", s, msg)
					return
				}
				d.AuthHeader = s
				l.value(at, s)
			}
		},
	},
	{
		name: "auth-scheme", doc: "What stands before the key, such as Bearer; the preset's unless auth-header is said.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "string", Pattern: headerName.String()}
		},
		set: func(l *loader, at place, d *providerDraft) {
			if s, ok := l.scalar(at); ok && !headerName.MatchString(s) {
				l.bad(at, "%q is not the name of a scheme, such as Bearer", s)
			} else if ok {
				d.AuthScheme = s
				l.value(at, s)
			}
		},
	},
	{
		name: "policy", doc: "When a request is sent again: a text, the name of a policy, or a map.", schema: policySchema,
		set: func(l *loader, at place, d *providerDraft) { d.Policy = l.providerPolicy(at) },
	},
	{
		name: "retry-posts", doc: "When a POST is sent again that was not refused at the door: never; when it was answered with a failure that may pass; also unanswered, when it may be done, and billed, twice.",
		schema: func() *jsonschema.Schema { return enum(postsWords...) },
		set:    func(l *loader, at place, d *providerDraft) { d.RetryPosts = l.word(at, postsWords...) },
	},
	{
		name: "repeatable", doc: "Other requests that may be sent twice, such as POST /v1/search. A path that ends in / stands for everything below it.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: routeForm.String()}, UniqueItems: true}
		},
		set: func(l *loader, at place, d *providerDraft) { d.Repeatable = l.routes(at) },
	},
	{
		name: "idempotency-keys", doc: "Whether requests that may not be sent twice get an Idempotency-Key, and then may.", schema: boolSchema,
		set: func(l *loader, at place, d *providerDraft) { d.IdempotencyKeys = l.truth(at) },
	},
	{
		name: "headers", doc: "Headers that are set on every request. Values may have references.", schema: providerHeadersSchema,
		set: func(l *loader, at place, d *providerDraft) { d.Headers = l.providerHeaders(at) },
	},
	{
		name: "rate", doc: "How much is asked of it.",
		schema: func() *jsonschema.Schema { return describe(rateKeys) },
		set: func(l *loader, at place, d *providerDraft) {
			if at.node.scalar() {
				l.bad(at, "%v, where a map is expected; write rate: {requests: %s}", at.node.kind, rateExample(at.node.text))
				return
			}
			object(l, at, rateKeys, d)
		},
	},
	{
		name: "priority", doc: "Class of requests that say nothing of it, from lowest to highest.",
		schema: func() *jsonschema.Schema { return enum(classes...) },
		set: func(l *loader, at place, d *providerDraft) {
			d.Priority, _ = limit.ParsePriority(l.word(at, classes...))
		},
	},
	{
		name: "breaker", doc: "When it counts as down.",
		schema: func() *jsonschema.Schema { return describe(breakerKeys) },
		set: func(l *loader, at place, d *providerDraft) {
			d.Breaker = breaker.Provider()
			object(l, at, breakerKeys, d)
		},
	},
	{
		name: "fallback", doc: "Providers of the same wire format that take over, in order. Each has credentials of its own.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: nameSchema(), UniqueItems: true}
		},
		set: func(l *loader, at place, d *providerDraft) {
			ok := l.list(at, func(at place) {
				if name, ok := l.scalar(at); ok {
					d.fallbacks = append(d.fallbacks, at)
					d.Fallback = append(d.Fallback, name)
				}
			})
			if ok {
				l.value(at, strings.Join(d.Fallback, ","))
			}
		},
	},
	{
		name: "forward-headers", doc: "Headers of callers that this provider is sent, beside those that are known to carry no credential, when it takes over for another one.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: headerName.String()}, UniqueItems: true}
		},
		set: func(l *loader, at place, d *providerDraft) {
			d.ForwardHeaders = l.forwarded(at, headerName, "header")
		},
	},
	{
		name: "forward-query", doc: "Query parameters of callers that this provider is sent, beside those that are known, when it takes over for another one. It does not take over requests with others.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: parameterForm.String()}, UniqueItems: true}
		},
		set: func(l *loader, at place, d *providerDraft) {
			d.ForwardQuery = l.forwarded(at, parameterForm, "query parameter")
		},
	},
	{
		name: "fallback-after", doc: "Attempts at one provider before the next takes over, while it is not known to be down.", schema: count(1),
		set: func(l *loader, at place, d *providerDraft) { d.FallbackAfter = l.number(at, 1) },
	},
	{
		name: "stream", doc: "How answers are passed on that come bit by bit.",
		schema: func() *jsonschema.Schema { return describe(streamKeys) },
		set:    func(l *loader, at place, d *providerDraft) { object(l, at, streamKeys, d) },
	},
	{
		name: "max-body", doc: "Largest body of a request; none for any.", schema: sizeOrNoneSchema,
		set: func(l *loader, at place, d *providerDraft) { d.MaxBody = l.bytesOrNone(at) },
	},
})

// located makes the keys of a provider note where they stand, under the name that
// the way to them makes.
func located(inside string, keys []key[providerDraft]) []key[providerDraft] {
	for i, k := range keys {
		keys[i].set = func(l *loader, at place, d *providerDraft) {
			d.found[inside+k.name] = at
			k.set(l, at, d)
		}
	}
	return keys
}

var postsWords = []string{gateway.PostsNever, gateway.PostsAnswered, gateway.PostsUnanswered}

// classes are the names of the priorities.
var classes = func() (names []string) {
	for p := limit.Lowest; p <= limit.Highest; p++ {
		names = append(names, p.String())
	}
	return names
}()

var routeForm = lazyregexp.New(`^([A-Z]+) (/[^\s?#]*)$`)

// routes reads a list of methods and paths.
func (l *loader) routes(at place) (list []gateway.Route) {
	var words []string
	ok := l.list(at, func(at place) {
		s, ok := l.scalar(at)
		if !ok {
			return
		}
		m := routeForm.FindStringSubmatch(s)
		switch {
		case m == nil:
			l.bad(at, "%q is not a method and a path such as POST /v1/search", s)
		case slices.Contains(list, gateway.Route{Method: m[1], Path: m[2]}):
			l.bad(at, "%q is given already", s)
		default:
			list, words = append(list, gateway.Route{Method: m[1], Path: m[2]}), append(words, s)
		}
	})
	if ok {
		l.value(at, strings.Join(words, ","))
	}
	return list
}

// parameterForm is the name of a query parameter, as it is written in an address
// after decoding.
var parameterForm = lazyregexp.New(`^[^\s&;=#?]*[^\s&;=#?_.-][^\s&;=#?]*$`)

// forwarded reads a list of names of headers or query parameters.
func (l *loader) forwarded(at place, form *lazyregexp.Regexp, what string) (list []string) {
	ok := l.list(at, func(at place) {
		s, ok := l.scalar(at)
		switch {
		case !ok:
		case !form.MatchString(s):
			l.bad(at, "%q is not the name of a %s", s, what)
		case slices.Contains(list, s):
			l.bad(at, "%q is given already", s)
		default:
			list = append(list, s)
		}
	})
	if ok {
		l.value(at, strings.Join(list, ","))
	}
	return list
}
