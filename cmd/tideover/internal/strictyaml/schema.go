package strictyaml

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
)

// Describe returns the schema of a map that [Object] reads by the same table of keys.
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

// literal returns the default of a key as JSON: a number if the schema s allows integers.
func literal(s *jsonschema.Schema, text string) json.RawMessage {
	if n, err := strconv.Atoi(text); err == nil && slices.Contains(s.Types, "integer") {
		return json.RawMessage(strconv.Itoa(n))
	}
	data, _ := json.Marshal(text) // a string always has a JSON form
	return data
}

// TextSchema accepts a text.
func TextSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }

// PatternSchema accepts a text that matches the pattern.
func PatternSchema(pattern string) SchemaFunc {
	return func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: pattern} }
}

// TextUpToSchema accepts a text. The argument most is the most characters.
func TextUpToSchema(most int) SchemaFunc {
	return func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string", MaxLength: &most} }
}

// ScalarSchema accepts a text, also without quotes if it looks like a number or a boolean.
func ScalarSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"string", "number", "boolean"}}
}

// TextsSchema accepts a list of texts. The argument least is the fewest items.
func TextsSchema(least int) SchemaFunc {
	return func() *jsonschema.Schema {
		return &jsonschema.Schema{Type: "array", MinItems: &least, Items: ScalarSchema()}
	}
}

// NameSchema accepts a name as a value. A name that looks like a number needs no quotes.
func NameSchema() *jsonschema.Schema {
	s := ScalarSchema()
	s.Pattern, s.Minimum = NamePattern, new(0.0)
	return s
}

// NamedSchema accepts a map that [Place.EachName] reads, with values that item accepts.
func NamedSchema(item *jsonschema.Schema) *jsonschema.Schema {
	names := &jsonschema.Schema{Type: "string", Pattern: NamePattern}
	return &jsonschema.Schema{Types: []string{"object", "null"}, PropertyNames: names, AdditionalProperties: item}
}

// BoolSchema accepts true or false.
func BoolSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} }

// Patterns of durations, without ^ and $. A duration above zero must match AbovePattern
// too, because one pattern can't require that one of the digits is not 0.
const (
	decimalPattern  = `([0-9]+\.?[0-9]*|\.[0-9]+)`
	HoursPattern    = decimalPattern + `(ns|us|µs|μs|ms|s|m|h)`
	DurationPattern = `(` + decimalPattern + `d(` + HoursPattern + `)*|(` + HoursPattern + `)+)`
	AbovePattern    = `[1-9]`
)

// DurationSchema accepts a value that [ReadDuration] reads.
func DurationSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: "^" + DurationPattern + "$", AllOf: []*jsonschema.Schema{{Pattern: AbovePattern}}}
}

// SizeSchema accepts a value that [ReadSize] reads.
func SizeSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Types: []string{"string", "integer"}, Minimum: new(1.0), Pattern: sizePattern}
}

// IntSchema accepts a value that [ReadInt] reads, in quotes or not.
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

// IntUpToSchema accepts a whole number from 1 to most. The pattern must match such a number in
// quotes.
func IntUpToSchema(most int, pattern string) SchemaFunc {
	return func() *jsonschema.Schema {
		s := IntSchema(1)()
		s.Maximum, s.Pattern = new(float64(most)), `^\+?0*(`+pattern+`)$`
		return s
	}
}

// WordSchema accepts one of the words.
func WordSchema(words ...string) SchemaFunc {
	return func() *jsonschema.Schema {
		s := TextSchema()
		for _, w := range words {
			s.Enum = append(s.Enum, w)
		}
		return s
	}
}

// PatternListSchema accepts a list of at least one text. The texts must match the pattern
// and be distinct.
func PatternListSchema(pattern string) SchemaFunc {
	return func() *jsonschema.Schema {
		item := PatternSchema(pattern)()
		return &jsonschema.Schema{Type: "array", MinItems: new(1), Items: item, UniqueItems: true}
	}
}

// OrNull changes the schema so that it also accepts null, and returns it.
func OrNull(s *jsonschema.Schema) *jsonschema.Schema {
	s.Type, s.Types = "", []string{s.Type, "null"}
	if len(s.Enum) > 0 {
		s.Enum = append(s.Enum, nil)
	}
	return s
}

// OneOf changes the schema so that it requires exactly one of the keys, and returns it.
func OneOf(s *jsonschema.Schema, names ...string) *jsonschema.Schema {
	for _, name := range names {
		s.OneOf = append(s.OneOf, &jsonschema.Schema{Required: []string{name}})
	}
	return s
}
