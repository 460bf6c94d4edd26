package config

// Tracing is where spans are sent.
type Tracing struct {
	Endpoint *SecretText   // base URL of an OTLP/HTTP receiver
	Headers  []NamedSecret // of each request, sorted by name
}

// tracing reads the section.
func (l *loader) tracing(at place) *Tracing {
	t := new(Tracing)
	object(l, at, tracingKeys, t)
	return t
}

var tracingKeys = []key[Tracing]{
	{
		name: "endpoint", required: true, doc: "Base URL of a receiver of OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces is added. May have references.", schema: textSchema,
		set: func(l *loader, at place, t *Tracing) { t.Endpoint = l.notifyURL(at) },
	},
	{
		name: "headers", doc: "Headers of each request. Values may have references.", schema: headersSchema,
		set: func(l *loader, at place, t *Tracing) { t.Headers = l.namedSecrets(at, headerNames()) },
	},
}
