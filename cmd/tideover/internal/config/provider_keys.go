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
		Name: "preset", Doc: "Built-in knowledge of the API: its address, how a key is sent, what its errors mean. Default: the preset with the provider's name, else generic.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema(gateway.Presets...) },
		Set: func(_ *providerReader, at place, d *providerDraft) {
			d.Preset = strictyaml.ReadWord(at, gateway.Presets...)
		},
	},
	{
		Name: "base-url", Doc: "Base URL of the API. Required for generic. It is shown in many places, so references are not allowed. Default: that of the preset.", Schema: strictyaml.TextSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.BaseURL = readBaseURL(at) },
	},
	{
		Name: "h2c", Doc: "Whether to use HTTP/2 without TLS and without negotiation, as many gRPC servers do. For a base-url that begins with http://.", Schema: strictyaml.BoolSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.H2C = strictyaml.ReadBool(at) },
	},
	{
		Name: "plain-http", Doc: "Whether keys, secret headers and credentials of clients may be sent unencrypted to a base-url that begins with http:// and is not on this machine. Others on the network can read them.", Schema: strictyaml.BoolSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.plainHTTP = strictyaml.ReadBool(at) },
	},
	{
		Name: "format", Doc: "Name of the wire format of a generic provider. Fallbacks must have the same format; formats are not translated.", Schema: strictyaml.NameSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) {
			if s, ok := at.Text(); ok && !strictyaml.ValidName(s) {
				at.Bad("%q is not a valid name for a format; %s", s, strictyaml.NameRule)
			} else if ok {
				d.Format = s
				at.Record(s)
			}
		},
	},
	{
		Name: "auth", Doc: "The key, as a reference: ${env:NAME} or ${file:path}; several keys as a list, where each may also be a map with name, key and account; none to send no credentials. Default: clients send their own.",
		Schema: authSchema,
		Set:    func(r *providerReader, at place, d *providerDraft) { r.auth(at, d) },
	},
	{
		Name: "auth-header", Doc: "Header in which the key is sent. Default: that of the preset.",
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
		Name: "auth-scheme", Doc: "Word before the key, such as Bearer. Default: that of the preset, or none if auth-header is set.",
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
		Name: "policy", Doc: "Retry policy of requests: a text, the name of a policy, or a map.", Schema: policySchema,
		Set: func(r *providerReader, at place, d *providerDraft) { d.Policy = r.policies.ofProvider(at) },
	},
	{
		Name: "retry-posts", Doc: "When to retry a POST that the provider may have processed: never; after a transient error response; or also without a response, in which case it may be processed, and billed, twice.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema(postsWords...) },
		Set: func(_ *providerReader, at place, d *providerDraft) {
			d.RetryPosts = strictyaml.ReadWord(at, postsWords...)
		},
	},
	{
		Name: "repeatable", Doc: "Other requests that are safe to send twice, such as POST /v1/search. A path that ends in / includes all paths below it.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: routeForm.String()}, UniqueItems: true}
		},
		Set: func(_ *providerReader, at place, d *providerDraft) { d.Repeatable = readRoutes(at) },
	},
	{
		Name: "idempotency-keys", Doc: "Whether to add an Idempotency-Key to requests that are not safe to send twice, so that they can be retried.", Schema: strictyaml.BoolSchema,
		Set: func(_ *providerReader, at place, d *providerDraft) { d.IdempotencyKeys = strictyaml.ReadBool(at) },
	},
	{
		Name: "headers", Doc: "Headers that are set on every request. Values may contain references.", Schema: providerHeadersSchema,
		Set: func(r *providerReader, at place, d *providerDraft) { d.Headers = r.providerHeaders(at) },
	},
	{
		Name: "rate", Doc: "Limits on requests to the provider.",
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
		Name: "priority", Doc: "Priority of requests that state none, from lowest to highest.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema(classes...) },
		Set: func(_ *providerReader, at place, d *providerDraft) {
			d.Priority, _ = limit.ParsePriority(strictyaml.ReadWord(at, classes...))
		},
	},
	{
		Name: "breaker", Doc: "When the provider counts as down.",
		Schema: func() *jsonschema.Schema { return strictyaml.Describe(breakerKeys) },
		Set: func(r *providerReader, at place, d *providerDraft) {
			d.Breaker = breaker.Provider()
			strictyaml.Object(r, at, breakerKeys, d)
		},
	},
	{
		Name: "fallback", Doc: "Providers of the same wire format to use instead, in order. Each needs its own credentials.",
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
		Name: "forward-headers", Doc: "Headers of clients that are sent to this provider when it is used as a fallback, in addition to those that are known to carry no credentials.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: headerName.String()}, UniqueItems: true}
		},
		Set: func(_ *providerReader, at place, d *providerDraft) {
			d.ForwardHeaders = readForwarded(at, headerName, "header")
		},
	},
	{
		Name: "forward-query", Doc: "Query parameters of clients that are sent to this provider when it is used as a fallback, in addition to the known ones. It is not used for requests with other parameters.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: parameterForm.String()}, UniqueItems: true}
		},
		Set: func(_ *providerReader, at place, d *providerDraft) {
			d.ForwardQuery = readForwarded(at, parameterForm, "query parameter")
		},
	},
	{
		Name: "fallback-after", Doc: "Attempts at one provider before the next one is used, while the provider is not known to be down.", Schema: strictyaml.IntSchema(1),
		Set: func(_ *providerReader, at place, d *providerDraft) { d.FallbackAfter = strictyaml.ReadInt(at, 1) },
	},
	{
		Name: "stream", Doc: "How streamed responses are passed on.",
		Schema: func() *jsonschema.Schema { return strictyaml.Describe(streamKeys) },
		Set:    func(r *providerReader, at place, d *providerDraft) { strictyaml.Object(r, at, streamKeys, d) },
	},
	{
		Name: "max-body", Doc: "Largest body of a request; none for no limit.", Schema: sizeOrNoneSchema,
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
			at.Bad("%q is listed twice", s)
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
			at.Bad("%q is listed twice", s)
		default:
			list = append(list, s)
		}
	})
	if ok {
		at.Record(strings.Join(list, ","))
	}
	return list
}
