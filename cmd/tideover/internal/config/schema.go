package config

import (
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/retry"
)

// Schema returns the JSON Schema of the file, for editors and for `tideover schema`. It is
// made from the tables of keys that [Load] uses. So it accepts the same keys, and the same
// values as far as a schema can express them.
//
// Only Load checks these:
//   - values that depend on others: needs, names of notifiers and providers, headers in
//     two spellings;
//   - texts with their own grammar: policies, templates, schedules, URLs, addresses, time
//     zones;
//   - secrets that are written out in the file;
//   - how a number is written, which JSON does not keep: Load refuses 3.0 and 0x3 as
//     whole numbers.
func Schema() []byte {
	data, err := json.MarshalIndent(fileSchema(), "", "  ")
	if err != nil {
		panic(err) // can't happen: the tables are constant, and a test calls Schema
	}
	return append(data, '\n')
}

func fileSchema() *jsonschema.Schema {
	f := newFileReader(Source{Environ: []string{}}, "", nil)
	s := strictyaml.Describe(f.rootKeys(f.cfg))
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "tideover"
	s.Description = "Configuration of tideover serve."
	return s
}

// commandSchema accepts a command and its arguments, as a list.
func commandSchema() *jsonschema.Schema {
	s, first := strictyaml.TextsSchema(1)(), strictyaml.ScalarSchema()
	first.MinLength = new(1)
	s.PrefixItems = []*jsonschema.Schema{first}
	return s
}

// describe returns [strictyaml.Describe] of the keys as a SchemaFunc, for a key whose
// value is a map.
func describe(keys []key) strictyaml.SchemaFunc {
	return func() *jsonschema.Schema { return strictyaml.Describe(keys) }
}

// oneOf is describe for a map that must have exactly one of the named keys.
func oneOf(keys []key, names ...string) strictyaml.SchemaFunc {
	return func() *jsonschema.Schema { return strictyaml.OneOf(strictyaml.Describe(keys), names...) }
}

// anyOf accepts a value that matches at least one of the schemas.
func anyOf(forms ...*jsonschema.Schema) *jsonschema.Schema { return &jsonschema.Schema{AnyOf: forms} }

// patternsSchema accepts a list of distinct texts that match the pattern.
func patternsSchema(pattern string) strictyaml.SchemaFunc {
	return func() *jsonschema.Schema {
		return &jsonschema.Schema{Type: "array", Items: strictyaml.PatternSchema(pattern)(), UniqueItems: true}
	}
}

// namesSchema accepts a list of distinct names.
func namesSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", Items: strictyaml.NameSchema(), UniqueItems: true}
}

// portPattern matches a port from 1 to 65535.
const portPattern = `0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])`

// codesSchema accepts a list of codes from least to most, and of ranges such as 100-110.
// The pattern must match such a code.
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

// policySchema accepts both forms of a policy, a text and a map.
func policySchema() *jsonschema.Schema {
	return anyOf(strictyaml.TextSchema(), strictyaml.Describe(policyKeys(new(retry.Policy))))
}
