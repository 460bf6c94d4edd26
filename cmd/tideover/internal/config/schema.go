package config

import (
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/retry"
)

// Schema returns the JSON Schema of the file, for editors and for `tideover schema`. It
// is made of the tables of keys that [Load] uses, and so accepts the same keys, and the
// same values as far as a schema can express them.
//
// Only Load checks values that depend on others, such as needs, names of notifiers and
// providers, and headers in two spellings; texts with a grammar of their own: policies,
// templates, schedules, URLs, addresses, time zones; secrets that are written out; and the
// form of a number, which JSON does not keep: 3.0 and 0x3 are no counts for Load.
func Schema() []byte {
	f := newFileReader(Source{Environ: []string{}}, "", nil)
	s := strictyaml.Describe(f.rootKeys(f.cfg))
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "tideover"
	s.Description = "Configuration of tideover serve."
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // the tables are constant, and a test has made it
	}
	return append(data, '\n')
}

// commandSchema is for a command and its arguments.
func commandSchema() *jsonschema.Schema {
	s, first := strictyaml.TextsSchema(1)(), strictyaml.ScalarSchema()
	first.MinLength = new(1)
	s.PrefixItems = []*jsonschema.Schema{first}
	return s
}

// wordSchema is for one of several words.
func wordSchema(words []string) strictyaml.SchemaFunc {
	return func() *jsonschema.Schema { return strictyaml.WordSchema(words...) }
}

// describe is [strictyaml.Describe] for a key of another map.
func describe(keys []key) strictyaml.SchemaFunc {
	return func() *jsonschema.Schema { return strictyaml.Describe(keys) }
}

// oneOf is describe for a map that has exactly one of the named keys.
func oneOf(keys []key, names ...string) strictyaml.SchemaFunc {
	return func() *jsonschema.Schema { return strictyaml.OneOf(strictyaml.Describe(keys), names...) }
}

// anyOf is for a value of one of several forms.
func anyOf(forms ...*jsonschema.Schema) *jsonschema.Schema { return &jsonschema.Schema{AnyOf: forms} }

// patternsSchema is for a list of texts that match the pattern, each given once.
func patternsSchema(pattern string) strictyaml.SchemaFunc {
	return func() *jsonschema.Schema {
		return &jsonschema.Schema{Type: "array", Items: strictyaml.PatternSchema(pattern)(), UniqueItems: true}
	}
}

// namesSchema is for a list of names, each given once.
func namesSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Items: strictyaml.NameSchema(), UniqueItems: true}
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
	return &jsonschema.Schema{Type: "object", PropertyNames: &jsonschema.Schema{Pattern: envName.String()}, AdditionalProperties: strictyaml.ScalarSchema()}
}

func headersSchema() *jsonschema.Schema {
	s := envSchema()
	s.PropertyNames = &jsonschema.Schema{Pattern: headerName.String(), Not: &jsonschema.Schema{Pattern: anyCase(clientHeaders)}}
	return s
}

// policySchema accepts the text and the map.
func policySchema() *jsonschema.Schema {
	return anyOf(strictyaml.TextSchema(), strictyaml.Describe(policyKeys(new(retry.Policy))))
}
