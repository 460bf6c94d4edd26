package config

import (
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// Tracing is where spans are sent.
type Tracing struct {
	Endpoint *template.SecretText   // base URL of an OTLP/HTTP receiver
	Headers  []template.NamedSecret // of each request, sorted by name
}

// tracing reads the section.
func (l *loader) tracing(at strictyaml.Place) *Tracing {
	t := new(Tracing)
	strictyaml.Object(l, at, tracingKeys, t)
	return t
}

var tracingKeys = []strictyaml.Key[*loader, Tracing]{
	{
		Name: "endpoint", Required: true, Doc: "Base URL of a receiver of OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces is added. May have references.", Schema: strictyaml.TextSchema,
		Set: func(l *loader, at strictyaml.Place, t *Tracing) { t.Endpoint = l.notifyURL(at) },
	},
	{
		Name: "headers", Doc: "Headers of each request. Values may have references.", Schema: headersSchema,
		Set: func(l *loader, at strictyaml.Place, t *Tracing) { t.Headers = l.SecretMap(at, headerNames()) },
	},
}
