package config

import (
	"encoding/json"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema returns the JSON Schema of the file, for editors and for `tideover
// schema`. It is made of the tables that the loader reads by, and so accepts the
// same keys; what depends on several values, such as needs, only the loader
// knows.
func Schema() []byte {
	s := describe(rootKeys)
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "tideover"
	s.Description = "Configuration of tideover serve."
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // the tables are constant, and a test has made it
	}
	return append(data, '\n')
}

func nothing() *jsonschema.Schema { return &jsonschema.Schema{Not: &jsonschema.Schema{}} }

func textSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }

// scalarSchema is for texts that may be written without quotes also when they
// look like a number.
func scalarSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"string", "number", "boolean"}}
}

func nameSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: namePattern}
}

func durationSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `^[0-9.]+(ns|us|µs|ms|s|m|h|d)([0-9.]+(ns|us|µs|ms|s|m|h))*$`}
}

func sizeSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"string", "integer"}, Minimum: new(1.0), Pattern: sizePattern}
}

func countSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: new(0.0)}
}

// codesSchema is for codes and ranges of them. The pattern is that of a code
// within the limits.
func codesSchema(least, most float64, pattern string) *jsonschema.Schema {
	item := &jsonschema.Schema{
		Types: []string{"integer", "string"}, Minimum: &least, Maximum: &most, Pattern: "^" + pattern + "(-" + pattern + ")?$",
	}
	return &jsonschema.Schema{Type: "array", Items: item}
}

func exitSchema() *jsonschema.Schema {
	return codesSchema(1, 255, `0*([1-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])`)
}

func envSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", AdditionalProperties: scalarSchema()}
}

func enum(words ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, w := range words {
		s.Enum = append(s.Enum, w)
	}
	return s
}

// namedSchema is a map of names, which may be left empty.
func namedSchema(item *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"object", "null"}, PropertyNames: nameSchema(), AdditionalProperties: item}
}

// policySchema accepts the text and the map.
func policySchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{textSchema(), describe(policyKeys)}}
}

// oneOf makes exactly one of the keys required.
func oneOf(s *jsonschema.Schema, names ...string) *jsonschema.Schema {
	for _, name := range names {
		s.OneOf = append(s.OneOf, &jsonschema.Schema{Required: slices.Clone([]string{name})})
	}
	return s
}

// literal returns the JSON of a default.
func literal(typ, text string) json.RawMessage {
	if typ == "integer" {
		return json.RawMessage(text)
	}
	data, _ := json.Marshal(text) // a string always has a JSON form
	return data
}
