package config

import (
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/limit"
)

// providerKeys are the keys of a provider.
var providerKeys = located("", []key[*providerReader, providerDraft]{
	{
		Name: "preset", Doc: "What is known of the API: its address, where a key goes, what its failures mean. The provider's name if it is one of them, else generic.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema(gateway.Presets...) },
		Set: func(_ *providerReader, at place, d *providerDraft) {
			d.Preset = strictyaml.ReadWord(at, gateway.Presets...)
		},
	},
	{
		Name: "base-url", Doc: "Requests go below it; that of the preset unless said, and needed for generic. It is shown to everybody: no references.", Schema: strictyaml.TextSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.BaseURL = readBaseURL(at) },
	},
	{
		Name: "h2c", Doc: "Whether HTTP/2 is spoken to a base-url that begins with http://, without TLS and without negotiation, as gRPC servers do.", Schema: strictyaml.BoolSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.H2C = strictyaml.ReadBool(at) },
	},
	{
		Name: "plain-http", Doc: "Whether keys, secret headers and credentials of callers may be sent to a base-url that begins with http:// and is not on this machine. Anybody on the network can read them.", Schema: strictyaml.BoolSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.plainHTTP = strictyaml.ReadBool(at) },
	},
	{
		Name: "format", Doc: "Name of the wire format of a generic provider. Fallbacks must have the same: there is no translation.", Schema: strictyaml.NameSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) {
			if s, ok := at.Text(); ok && !strictyaml.ValidName(s) {
				at.Bad("%q is not a name for a format; %s", s, strictyaml.NameRule)
			} else if ok {
				d.Format = s
				at.Record(s)
			}
		},
	},
	{
		Name: "auth", Doc: "The key, as a reference: ${env:NAME} or ${file:path}; several as a list, where each may also be a map with name, key and account; none for no credentials at all. Callers bring their own unless said.",
		Schema: authSchema,
		Set:    func(r *providerReader, at place, d *providerDraft) { r.auth(at, d) },
	},
	{
		Name: "auth-header", Doc: "Header in which the key is sent; the preset's unless said.",
		Schema: gatewayHeaderSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) {
			if s, ok := at.Text(); ok {
				if msg := providerHeaderNames()(s); msg != "" {
					at.Bad("%q %s", s, msg)
					return
				}
				d.AuthHeader = s
				at.Record(s)
			}
		},
	},
	{
		Name: "auth-scheme", Doc: "What stands before the key, such as Bearer; the preset's unless auth-header is said.",
		Schema: func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: headerName.String()} },
		Set: func(_ *providerReader, at place, d *providerDraft) {
			if s, ok := at.Text(); ok && !headerName.MatchString(s) {
				at.Bad("%q is not the name of a scheme, such as Bearer", s)
			} else if ok {
				d.AuthScheme = s
				at.Record(s)
			}
		},
	},
	{
		Name: "policy", Doc: "When a request is sent again: a text, the name of a policy, or a map.", Schema: policySchema,
		Set: func(r *providerReader, at place, d *providerDraft) { d.Policy = r.policies.ofProvider(at) },
	},
	{
		Name: "retry-posts", Doc: "When a POST is sent again that was not refused at the door: never; when it was answered with a failure that may pass; also unanswered, when it may be done, and billed, twice.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema(postsWords...) },
		Set: func(_ *providerReader, at place, d *providerDraft) {
			d.RetryPosts = strictyaml.ReadWord(at, postsWords...)
		},
	},
	{
		Name: "repeatable", Doc: "Other requests that may be sent twice, such as POST /v1/search. A path that ends in / stands for everything below it.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: routeForm.String()}, UniqueItems: true}
		},
		Set: func(_ *providerReader, at place, d *providerDraft) { d.Repeatable = readRoutes(at) },
	},
	{
		Name: "idempotency-keys", Doc: "Whether requests that may not be sent twice get an Idempotency-Key, and then may.", Schema: strictyaml.BoolSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.IdempotencyKeys = strictyaml.ReadBool(at) },
	},
	{
		Name: "headers", Doc: "Headers that are set on every request. Values may have references.", Schema: providerHeadersSchema,
		Set: func(r *providerReader, at place, d *providerDraft) { d.Headers = r.providerHeaders(at) },
	},
	{
		Name: "rate", Doc: "How much is asked of it.",
		Schema: func() *jsonschema.Schema { return strictyaml.Describe(rateKeys) },
		Set: func(r *providerReader, at place, d *providerDraft) {
			if at.Node.IsScalar() {
				at.Bad("%v, where a map is expected; write rate: {requests: %s}", at.Node.Kind, rateExample(at.Node.Text))
				return
			}
			strictyaml.Object(r, at, rateKeys, d)
		},
	},
	{
		Name: "priority", Doc: "Class of requests that say nothing of it, from lowest to highest.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema(classes...) },
		Set: func(_ *providerReader, at place, d *providerDraft) {
			d.Priority, _ = limit.ParsePriority(strictyaml.ReadWord(at, classes...))
		},
	},
	{
		Name: "breaker", Doc: "When it counts as down.",
		Schema: func() *jsonschema.Schema { return strictyaml.Describe(breakerKeys) },
		Set: func(r *providerReader, at place, d *providerDraft) {
			d.Breaker = breaker.Provider()
			strictyaml.Object(r, at, breakerKeys, d)
		},
	},
	{
		Name: "fallback", Doc: "Providers of the same wire format that take over, in order. Each has credentials of its own.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: strictyaml.NameSchema(), UniqueItems: true}
		},
		Set: func(_ *providerReader, at place, d *providerDraft) {
			ok := at.Each(func(at place) {
				if name, ok := at.Text(); ok {
					d.fallbacks = append(d.fallbacks, at)
					d.Fallback = append(d.Fallback, name)
				}
			})
			if ok {
				at.Record(strings.Join(d.Fallback, ","))
			}
		},
	},
	{
		Name: "forward-headers", Doc: "Headers of callers that this provider is sent, beside those that are known to carry no credential, when it takes over for another one.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: headerName.String()}, UniqueItems: true}
		},
		Set: func(_ *providerReader, at place, d *providerDraft) {
			d.ForwardHeaders = readForwarded(at, headerName, "header")
		},
	},
	{
		Name: "forward-query", Doc: "Query parameters of callers that this provider is sent, beside those that are known, when it takes over for another one. It does not take over requests with others.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: parameterForm.String()}, UniqueItems: true}
		},
		Set: func(_ *providerReader, at place, d *providerDraft) {
			d.ForwardQuery = readForwarded(at, parameterForm, "query parameter")
		},
	},
	{
		Name: "fallback-after", Doc: "Attempts at one provider before the next takes over, while it is not known to be down.", Schema: strictyaml.IntSchema(1),
		Set: func(_ *providerReader, at place, d *providerDraft) { d.FallbackAfter = strictyaml.ReadInt(at, 1) },
	},
	{
		Name: "stream", Doc: "How answers are passed on that come bit by bit.",
		Schema: func() *jsonschema.Schema { return strictyaml.Describe(streamKeys) },
		Set:    func(r *providerReader, at place, d *providerDraft) { strictyaml.Object(r, at, streamKeys, d) },
	},
	{
		Name: "max-body", Doc: "Largest body of a request; none for any.", Schema: sizeOrNoneSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.MaxBody = bytesOrNone(at) },
	},
})

// located makes the keys of a provider note where they stand, under the name that
// the way to them makes.
func located(inside string, keys []key[*providerReader, providerDraft]) []key[*providerReader, providerDraft] {
	for i, k := range keys {
		keys[i].Set = func(r *providerReader, at place, d *providerDraft) {
			d.found[inside+k.Name] = at
			k.Set(r, at, d)
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

// readRoutes reads a list of methods and paths.
func readRoutes(at place) (list []gateway.Route) {
	var words []string
	ok := at.Each(func(at place) {
		s, ok := at.Text()
		if !ok {
			return
		}
		m := routeForm.FindStringSubmatch(s)
		switch {
		case m == nil:
			at.Bad("%q is not a method and a path such as POST /v1/search", s)
		case slices.Contains(list, gateway.Route{Method: m[1], Path: m[2]}):
			at.Bad("%q is given already", s)
		default:
			list, words = append(list, gateway.Route{Method: m[1], Path: m[2]}), append(words, s)
		}
	})
	if ok {
		at.Record(strings.Join(words, ","))
	}
	return list
}

// parameterForm is the name of a query parameter, as it is written in an address
// after decoding.
var parameterForm = lazyregexp.New(`^[^\s&;=#?]*[^\s&;=#?_.-][^\s&;=#?]*$`)

// readForwarded reads a list of names of headers or query parameters.
func readForwarded(at place, form *lazyregexp.Regexp, what string) (list []string) {
	ok := at.Each(func(at place) {
		s, ok := at.Text()
		switch {
		case !ok:
		case !form.MatchString(s):
			at.Bad("%q is not the name of a %s", s, what)
		case slices.Contains(list, s):
			at.Bad("%q is given already", s)
		default:
			list = append(list, s)
		}
	})
	if ok {
		at.Record(strings.Join(list, ","))
	}
	return list
}
