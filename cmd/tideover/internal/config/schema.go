package config

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema returns the JSON Schema of the file, for editors and for `tideover
// schema`. It is made of the tables that the loader reads by, and so accepts the
// same keys, and the same values as far as a schema can tell them.
//
// Only the loader knows what depends on several values, such as needs, names of
// notifiers and providers, and headers in two spellings; what a text means that has a grammar of
// its own: policies, templates, schedules, URLs, addresses, time zones; which secrets
// are written out; and what JSON does not keep of a number, which is how it is
// written: 3.0 and 0x3 are no counts to the loader.
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

// nameSchema is for names where they are used. One that looks like a number needs
// no quotes.
func nameSchema() *jsonschema.Schema {
	s := scalarSchema()
	s.Pattern, s.Minimum = namePattern, new(0.0)
	return s
}

// Patterns of durations. A schema has no way to say in one pattern that one of the
// digits must not be 0, and so says it in another.
const (
	decimalPattern  = `([0-9]+\.?[0-9]*|\.[0-9]+)`
	hoursPattern    = decimalPattern + `(ns|us|µs|μs|ms|s|m|h)`
	durationPattern = `(` + decimalPattern + `d(` + hoursPattern + `)*|(` + hoursPattern + `)+)`
	abovePattern    = `[1-9]`
)

func durationSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: "^" + durationPattern + "$", AllOf: []*jsonschema.Schema{{Pattern: abovePattern}}}
}

func sizeSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"string", "integer"}, Minimum: new(1.0), Pattern: sizePattern}
}

// count returns the schema of a whole number, in quotes or not.
func count(least int) func() *jsonschema.Schema {
	pattern := `^(\+?[0-9]+|-0+)$`
	if least > 0 {
		pattern = `^\+?0*[1-9][0-9]*$`
	}
	return func() *jsonschema.Schema {
		return &jsonschema.Schema{
			Types: []string{"integer", "string"}, Minimum: new(float64(least)), Maximum: new(float64(math.MaxInt32)), Pattern: pattern,
		}
	}
}

// commandSchema is for a command and its arguments.
func commandSchema() *jsonschema.Schema {
	s, first := textsSchema(1), scalarSchema()
	first.MinLength = new(1)
	s.PrefixItems = []*jsonschema.Schema{first}
	return s
}

// portPattern is that of a port but 0.
const portPattern = `0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])`

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
	return &jsonschema.Schema{Type: "object", PropertyNames: &jsonschema.Schema{Pattern: envName.String()}, AdditionalProperties: scalarSchema()}
}

func headersSchema() *jsonschema.Schema {
	s := envSchema()
	s.PropertyNames = &jsonschema.Schema{Pattern: headerName.String(), Not: &jsonschema.Schema{Pattern: anyCase(clientHeaders)}}
	return s
}

// orNull is for what may be left empty.
func orNull(s *jsonschema.Schema) *jsonschema.Schema {
	s.Type, s.Types = "", []string{s.Type, "null"}
	if len(s.Enum) > 0 {
		s.Enum = append(s.Enum, nil)
	}
	return s
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
	names := &jsonschema.Schema{Type: "string", Pattern: namePattern}
	return &jsonschema.Schema{Types: []string{"object", "null"}, PropertyNames: names, AdditionalProperties: item}
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
func literal(s *jsonschema.Schema, text string) json.RawMessage {
	if n, err := strconv.Atoi(text); err == nil && slices.Contains(s.Types, "integer") {
		return json.RawMessage(strconv.Itoa(n))
	}
	data, _ := json.Marshal(text) // a string always has a JSON form
	return data
}
