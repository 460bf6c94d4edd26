package strictyaml

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
)

// Describe returns the schema of a map that [Object] reads by the table.
func Describe(keys []Key) *jsonschema.Schema {
	nothing := &jsonschema.Schema{Not: &jsonschema.Schema{}}
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}, AdditionalProperties: nothing}
	for _, k := range keys {
		p := k.Schema()
		p.Description = k.Doc
		if k.Default != "" {
			p.Default = literal(p, k.Default)
		}
		s.Properties[k.Name] = p
		s.PropertyOrder = append(s.PropertyOrder, k.Name)
		if k.Required {
			s.Required = append(s.Required, k.Name)
		}
	}
	slices.Sort(s.Required)
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

// TextSchema is for a text.
func TextSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }

// PatternSchema is for a text that matches the pattern.
func PatternSchema(pattern string) SchemaFunc {
	return func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: pattern} }
}

// TextUpToSchema is for a text of at most so many characters.
func TextUpToSchema(most int) SchemaFunc {
	return func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", MaxLength: &most} }
}

// ScalarSchema is for a text that needs no quotes when it looks like a number or a
// boolean.
func ScalarSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"string", "number", "boolean"}}
}

// TextsSchema is for a list of at least so many texts.
func TextsSchema(least int) SchemaFunc {
	return func() *jsonschema.Schema {
		return &jsonschema.Schema{Type: "array", MinItems: &least, Items: ScalarSchema()}
	}
}

// NameSchema is for a name where it is used. One that looks like a number needs no
// quotes.
func NameSchema() *jsonschema.Schema {
	s := ScalarSchema()
	s.Pattern, s.Minimum = NamePattern, new(0.0)
	return s
}

// NamedSchema is for a map that [Place.EachName] reads, which may be empty.
func NamedSchema(item *jsonschema.Schema) *jsonschema.Schema {
	names := &jsonschema.Schema{Type: "string", Pattern: NamePattern}
	return &jsonschema.Schema{Types: []string{"object", "null"}, PropertyNames: names, AdditionalProperties: item}
}

// BoolSchema is for true or false.
func BoolSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} }

// Patterns of durations, without the begin and the end of the text. A schema has no way
// to require in one pattern that one of the digits is not 0: AbovePattern does that.
const (
	decimalPattern  = `([0-9]+\.?[0-9]*|\.[0-9]+)`
	HoursPattern    = decimalPattern + `(ns|us|µs|μs|ms|s|m|h)`
	DurationPattern = `(` + decimalPattern + `d(` + HoursPattern + `)*|(` + HoursPattern + `)+)`
	AbovePattern    = `[1-9]`
)

// DurationSchema is for what [ReadDuration] reads.
func DurationSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: "^" + DurationPattern + "$", AllOf: []*jsonschema.Schema{{Pattern: AbovePattern}}}
}

// SizeSchema is for what [ReadSize] reads.
func SizeSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"string", "integer"}, Minimum: new(1.0), Pattern: sizePattern}
}

// IntSchema is for what [ReadInt] reads, in quotes or not.
func IntSchema(least int) SchemaFunc {
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

// IntUpToSchema is for what [ReadIntUpTo] reads; the pattern is for a number in quotes.
func IntUpToSchema(most int, pattern string) SchemaFunc {
	return func() *jsonschema.Schema {
		s := IntSchema(1)()
		s.Maximum, s.Pattern = new(float64(most)), `^\+?0*(`+pattern+`)$`
		return s
	}
}

// WordSchema is for what [ReadWord] reads.
func WordSchema(words ...string) *jsonschema.Schema {
	s := TextSchema()
	for _, w := range words {
		s.Enum = append(s.Enum, w)
	}
	return s
}

// PatternListSchema is for a list of at least one text, each of which matches the
// pattern and is given once.
func PatternListSchema(pattern string) SchemaFunc {
	return func() *jsonschema.Schema {
		item := PatternSchema(pattern)()
		return &jsonschema.Schema{Type: "array", MinItems: new(1), Items: item, UniqueItems: true}
	}
}

// OrNull returns the schema for the same value or none.
func OrNull(s *jsonschema.Schema) *jsonschema.Schema {
	s.Type, s.Types = "", []string{s.Type, "null"}
	if len(s.Enum) > 0 {
		s.Enum = append(s.Enum, nil)
	}
	return s
}

// OneOf makes exactly one of the keys required.
func OneOf(s *jsonschema.Schema, names ...string) *jsonschema.Schema {
	for _, name := range names {
		s.OneOf = append(s.OneOf, &jsonschema.Schema{Required: []string{name}})
	}
	return s
}
