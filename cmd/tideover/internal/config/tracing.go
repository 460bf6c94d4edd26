package config

import (
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/tracing"
)

// readTracing reads the section.
func readTracing(r *sharedReader, at place) *tracing.Config {
	t := new(tracing.Config)
	strictyaml.Object(r, at, tracingKeys, t)
	return t
}

var tracingKeys = []key[*sharedReader, tracing.Config]{
	{
		Name: "endpoint", Required: true, Doc: "Base URL of a receiver of OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces is added. May have references.", Schema: strictyaml.TextSchema,
		Set: func(r *sharedReader, at place, t *tracing.Config) { t.Endpoint = r.secretURL(at) },
	},
	{
		Name: "headers", Doc: "Headers of each request. Values may have references.", Schema: headersSchema,
		Set: func(r *sharedReader, at place, t *tracing.Config) { t.Headers = r.SecretMap(at, headerNames()) },
	},
}
