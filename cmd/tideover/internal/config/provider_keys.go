package config

import (
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/limit"
)

// providerKeys are the keys of a provider.
func (r *providerReader) providerKeys(d *providerDraft) []key {
	return []key{
		strictyaml.Word(&d.Preset, "preset", "", gateway.Presets,
			"Built-in knowledge of the API: its address, how a key is sent, what its errors mean. Default: the preset with the provider's name, else generic."),
		strictyaml.Field(&d.BaseURL, "base-url", "", strictyaml.TextSchema, readBaseURL,
			"Base URL of the API. Required for generic. It is shown in many places, so references are not allowed. Default: that of the preset."),
		strictyaml.Bool(&d.H2C, "h2c",
			"Whether to use HTTP/2 without TLS and negotiation, as many gRPC servers do. For a base-url with http://."),
		strictyaml.Bool(&d.plainHTTP, "plain-http",
			"Whether credentials may be sent unencrypted to a base-url with http:// that is not on this machine. Others on the network can read them."),
		strictyaml.Field(&d.Format, "format", "", strictyaml.NameSchema,
			func(at place) string { return strictyaml.ReadName(at, "format") },
			"Name of the wire format of a generic provider. Fallbacks must have the same format; formats are not translated."),
		strictyaml.Func("auth", "", authSchema, func(at place) { r.auth(at, d) },
			"The key, as a reference: ${env:NAME} or ${file:path}; several keys as a list, where each may also be a map with name, key and account; none to send no credentials. Default: clients send their own."),
		strictyaml.Parsed(&d.AuthHeader, "auth-header", "", gatewayHeaderSchema, parseAuthHeader,
			"Header in which the key is sent. Default: that of the preset."),
		strictyaml.Parsed(&d.AuthScheme, "auth-scheme", "", strictyaml.PatternSchema(headerName.String()),
			strictyaml.Matching(headerName, "is not the name of a scheme, such as Bearer"),
			"Word before the key, such as Bearer. Default: that of the preset, or none if auth-header is set."),
		strictyaml.Field(&d.Policy, "policy", "", policySchema, r.policies.ofProvider,
			"Retry policy of requests: a text, the name of a policy, or a map."),
		strictyaml.Word(&d.RetryPosts, "retry-posts", "", postsWords,
			"When to retry a POST that the provider may have processed: never; after a transient error response; or also without a response: it may then be processed, and billed, twice."),
		strictyaml.Field(&d.Repeatable, "repeatable", "", patternsSchema(routeForm.String()), readRoutes,
			"Other requests that are safe to send twice, such as POST /v1/search. A path that ends in / includes all paths below it."),
		strictyaml.Bool(&d.IdempotencyKeys, "idempotency-keys",
			"Whether to add an Idempotency-Key to requests that are not safe to send twice, so that they can be retried."),
		strictyaml.Field(&d.Headers, "headers", "", providerHeadersSchema, r.providerHeaders,
			"Headers that are set on every request. Values may contain references."),
		strictyaml.Func("rate", "", describe(rateKeys(d)), func(at place) {
			if at.Node.IsScalar() {
				at.Bad("%v, where a map is expected; write rate: {requests: %s}", at.Node.Kind, rateExample(at.Node.Text))
				return
			}
			d.read("rate.", at, rateKeys(d))
		}, "Limits on requests to the provider."),
		strictyaml.Func("priority", "", strictyaml.WordSchema(classes...), func(at place) {
			d.Priority, _ = limit.ParsePriority(strictyaml.ReadWord(at, classes...))
		}, "Priority of requests that state none, from lowest to highest."),
		strictyaml.Func("breaker", "", describe(breakerKeys(d)), func(at place) {
			d.Breaker = breaker.Provider()
			d.read("breaker.", at, breakerKeys(d))
		}, "When the provider counts as down."),
		strictyaml.Func("fallback", "", namesSchema, func(at place) {
			at.Each(func(at place) {
				if name, ok := at.Text(); ok {
					d.fallbacks = append(d.fallbacks, at)
					d.Fallback = append(d.Fallback, name)
				}
			})
			recordItems(at)
		}, "Providers of the same wire format to use instead, in order. Each needs its own credentials."),
		forwardedNames(&d.ForwardHeaders, "forward-headers", headerName, "header",
			"Further headers of clients that this provider gets as a fallback, besides those known to carry no credentials."),
		forwardedNames(&d.ForwardQuery, "forward-query", parameterForm, "query parameter",
			"Further query parameters of clients that this provider gets as a fallback. It gets no request with unknown ones."),
		strictyaml.Int(&d.FallbackAfter, "fallback-after", "", 1,
			"Failed attempts at one provider before the next one is used, while the provider is not known to be down. An attempt whose key was throttled or rejected does not count if another key can be used at once. Default: 2."),
		strictyaml.Func("stream", "", describe(streamKeys(d)), func(at place) { d.read("stream.", at, streamKeys(d)) },
			"How streamed responses are passed on."),
		strictyaml.Field(&d.MaxBody, "max-body", "", sizeOrNoneSchema, orNone(strictyaml.ReadSize),
			"Largest body of a request; none for no limit."),
	}
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
func readRoutes(at place) []gateway.Route {
	recordItems(at)
	return readList(at, func(s string) (route gateway.Route, wrong string) {
		m := routeForm.FindStringSubmatch(s)
		if m == nil {
			return route, "is not a method and a path such as POST /v1/search"
		}
		return gateway.Route{Method: m[1], Path: m[2]}, ""
	})
}

// parseAuthHeader returns s if it can be the header in which the key is sent.
func parseAuthHeader(s string) (string, error) {
	if msg := providerHeaderNames()(s); msg != "" {
		return "", fmt.Errorf("%q %s", s, msg)
	}
	return s, nil
}

// parameterForm matches the decoded name of a query parameter.
var parameterForm = lazyregexp.New(`^[^\s&;=#?]*[^\s&;=#?_.-][^\s&;=#?]*$`)

// forwardedNames returns a key for a list of names of headers or query parameters. The
// argument what is "header" or "query parameter", for messages.
func forwardedNames(dst *[]string, name string, form *lazyregexp.Regexp, what, doc string) key {
	read := func(at place) []string {
		recordItems(at)
		return readList(at, func(s string) (name, wrong string) {
			if !form.MatchString(s) {
				wrong = "is not the name of a " + what
			}
			return s, wrong
		})
	}
	return strictyaml.Field(dst, name, "", patternsSchema(form.String()), read, doc)
}

func rateKeys(d *providerDraft) []key {
	return []key{
		strictyaml.Parsed(&d.Rate, "requests", "", strictyaml.PatternSchema(frequencyPattern), limit.ParseRate,
			"Most requests per unit of time, such as 50/min; the units are s, min, h and d, or a duration. Default: no limit."),
		strictyaml.Int(&d.Burst, "burst", "", 1, "Requests that may be sent in a burst. Default: 1."),
		strictyaml.Int(&d.Concurrent, "concurrent", "", 1,
			"Most requests at the same time. Default: no limit."),
		strictyaml.Int(&d.Queue, "queue", "", 1,
			"Requests that may wait in the queue, for the limit or for the provider to recover."),
		strictyaml.Bool(&d.Adaptive, "adaptive", "Whether to adapt the rate to 429 responses."),
	}
}

// rateExample returns the text if it is a valid rate, or else an example of a rate.
func rateExample(text string) string {
	if _, err := limit.ParseRate(text); err != nil {
		return "50/min"
	}
	return text
}

const frequencyPattern = `^0*[1-9][0-9]*/(s|min|h|d|0*[1-9][0-9]*d|(` + strictyaml.HoursPattern + `)+)$`

func breakerKeys(d *providerDraft) []key {
	return []key{
		strictyaml.Parsed(&d.Breaker.FailureRate, "failures", "", percentSchema, parsePercent,
			"Share of failed requests at which the provider counts as down, such as 50%."),
		strictyaml.Duration(&d.Breaker.Window, "window", "",
			"Time window over which the shares are computed."),
		// of-last is read after window: with a window it is the fewest requests in it
		strictyaml.Func("of-last", "", strictyaml.IntSchema(1), func(at place) {
			n := strictyaml.ReadInt(at, 1)
			if d.Breaker.MinCalls = n; d.at.Node.Get("breaker").Get("window") == nil {
				d.Breaker.Window, d.Breaker.WindowCalls, d.Breaker.MinCalls = 0, n, 0
			}
		}, "Number of most recent requests over which the shares are computed; together with window, the fewest requests in the window."),
		strictyaml.Int(&d.Breaker.ConsecutiveFailures, "consecutive", "", 0,
			"Consecutive failures at which the provider counts as down; 0 for no limit."),
		strictyaml.Duration(&d.OpenFor, "open-for", "",
			"Shortest wait before the next probe of a provider that is down."),
		strictyaml.Duration(&d.Breaker.SlowCall, "slow", "",
			"A request is slow if its response takes at least this long to begin. Default: no request is slow."),
		strictyaml.Parsed(&d.Breaker.SlowRate, "slow-rate", "", percentSchema, parsePercent,
			"Share of slow requests at which the provider counts as down. Default: 80%."),
	}
}

func streamKeys(d *providerDraft) []key {
	return []key{
		strictyaml.Field(&d.StreamHold, "hold", "", durationOrNoneSchema, orNone(strictyaml.ReadDuration),
			"How long a stream is held back until its first content, so that the request can still be retried; none to pass it on at once."),
		strictyaml.Field(&d.StreamIdle, "idle", "", durationOrNoneSchema, orNone(strictyaml.ReadDuration),
			"Longest pause within a response; none for no limit."),
	}
}

// orNone returns a function that reads a value with read. It also accepts "none" and returns
// -1 for it: for 0 the gateway would use its default.
func orNone[V time.Duration | int64](read func(place) V) func(place) V {
	return func(at place) V {
		if at.Node.Kind == strictyaml.KindText && at.Node.Text == "none" {
			at.Record("none")
			return -1
		}
		return read(at)
	}
}

func durationOrNoneSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: "^(none|" + strictyaml.DurationPattern + ")$", AllOf: []*jsonschema.Schema{{Pattern: strictyaml.AbovePattern + "|^none$"}}}
}

func sizeOrNoneSchema() *jsonschema.Schema {
	s := strictyaml.SizeSchema()
	s.Pattern = "^none$|" + s.Pattern
	return s
}
