package simulate

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// reader sets the fields of structs from a file. The yaml tags of the fields are the keys of the file.
type reader struct {
	places map[string]strictyaml.Place // position of each value in the file, by its path
	broken map[string]bool             // paths of the values that could not be read
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	scheduleType = reflect.TypeFor[backoff.Schedule]()
)

// value sets a value from the file.
func (r *reader) value(p strictyaml.Place, to reflect.Value) {
	r.places[p.Path()] = p
	ok := true
	switch kind := to.Kind(); {
	case to.Type() == durationType:
		ok = set(to, p.Duration)
	case to.Type() == scheduleType:
		ok = set(to, func() (backoff.Schedule, bool) { return schedule(p) })
	case kind == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		r.value(p, to.Elem())
	case kind == reflect.Struct:
		ok = p.IsMap()
		r.object(p, to)
	case kind == reflect.Slice, kind == reflect.Array:
		ok = r.list(p, to)
	case kind == reflect.Bool:
		ok = set(to, p.Truth)
	case kind == reflect.Int:
		ok = set(to, p.Whole)
	case kind == reflect.Float64:
		ok = set(to, p.Number)
	default: // a string: a test checks all tags
		ok = set(to, p.Text)
	}
	if !ok {
		r.broken[p.Path()] = true
	}
}

// set sets a value to the result of read, which may have another type of the same kind.
func set[T any](to reflect.Value, read func() (T, bool)) bool {
	v, ok := read()
	to.Set(reflect.ValueOf(v).Convert(to.Type()))
	return ok
}

// list sets a slice, or an array, which has a fixed length.
func (r *reader) list(p strictyaml.Place, to reflect.Value) bool {
	items, ok := p.Items()
	if !ok {
		return false
	}
	if to.Kind() == reflect.Slice {
		to.Set(reflect.MakeSlice(to.Type(), len(items), len(items)))
	} else if len(items) != to.Len() {
		p.Bad("%d values: want %d", len(items), to.Len())
		return false
	}
	for i, item := range items {
		r.value(item, to.Index(i))
	}
	return true
}

// object sets the fields of a struct.
func (r *reader) object(p strictyaml.Place, to reflect.Value) {
	names, fields := fieldsOf(to.Type())
	for name, at := range p.Keys(names) {
		r.value(at, to.FieldByIndex(fields[name].Index))
	}
}

// fieldsOf returns the fields of a struct that a file can set, by their names in the file, and these
// names in order. A field without a yaml tag has its own name in lower case, with hyphens.
func fieldsOf(t reflect.Type) (names []string, fields map[string]reflect.StructField) {
	fields = map[string]reflect.StructField{}
	for f := range t.Fields() {
		if f.IsExported() {
			name := cmp.Or(f.Tag.Get("yaml"), strings.ToLower(capital.ReplaceAllString(f.Name, "$1-$2")))
			names, fields[name] = append(names, name), f
		}
	}
	return names, fields
}

// capital matches the beginning of a word inside of a name.
var capital = lazyregexp.New(`([a-z])([A-Z])`)

// contestant returns the path of policy i in errors of package sim.
func contestant(i int) string { return fmt.Sprintf("contestants[%d]", i) }

// YAML returns the file as YAML for [Parse]. It leaves out zero values.
func (f File) YAML() string {
	var b strings.Builder
	writeFields(&b, reflect.ValueOf(f.Scenario), "")
	if len(f.Policies) > 0 {
		b.WriteString(policiesKey + ":\n")
	}
	for _, c := range f.Policies {
		if c.Breaker == nil && !c.Prepaid {
			fmt.Fprintf(&b, "  %s: %s\n", yamlText(c.Name), yamlText(c.Policy.String()))
			continue
		}
		fmt.Fprintf(&b, "  %s:\n", yamlText(c.Name))
		writeFields(&b, reflect.ValueOf(equipment{Policy: c.Policy.String(), Prepaid: c.Prepaid}), "    ")
		switch {
		case c.Breaker == nil:
		case *c.Breaker != breaker.Config{}:
			writeValue(&b, "breaker", reflect.ValueOf(c.Breaker), "    ")
		default:
			b.WriteString("    breaker: {}\n")
		}
	}
	return b.String()
}

// writeFields writes the fields of a struct that are not zero, one per line.
func writeFields(b *strings.Builder, v reflect.Value, indent string) {
	names, fields := fieldsOf(v.Type())
	for _, name := range names {
		if at := v.FieldByIndex(fields[name].Index); !at.IsZero() {
			writeValue(b, name, at, indent)
		}
	}
}

func writeValue(b *strings.Builder, name string, v reflect.Value, indent string) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Struct && v.Type() != scheduleType:
		fmt.Fprintf(b, "%s%s:\n", indent, name)
		writeFields(b, v, indent+"  ")
	case v.Kind() == reflect.Slice, v.Kind() == reflect.Array:
		writeList(b, name, v, indent)
	default:
		fmt.Fprintf(b, "%s%s: %s\n", indent, name, yamlScalar(v))
	}
}

// writeList writes structs on separate lines, and scalars on one line.
func writeList(b *strings.Builder, name string, v reflect.Value, indent string) {
	if v.Type().Elem().Kind() != reflect.Struct {
		list := make([]string, v.Len())
		for i := range list {
			list[i] = yamlScalar(v.Index(i))
		}
		fmt.Fprintf(b, "%s%s: [%s]\n", indent, name, strings.Join(list, ", "))
		return
	}
	fmt.Fprintf(b, "%s%s:\n", indent, name)
	for i := range v.Len() {
		var item strings.Builder
		writeFields(&item, v.Index(i), indent+"    ")
		fmt.Fprintf(b, "%s  - %s", indent, strings.TrimPrefix(item.String(), indent+"    "))
	}
}

func yamlScalar(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return textfmt.ASCIIDuration(x)
	case backoff.Schedule:
		return yamlText(retry.Policy{Schedule: x}.String())
	}
	if v.Kind() == reflect.String {
		return yamlText(v.String())
	}
	return fmt.Sprint(v)
}

// bare matches text that needs no quotes in YAML.
var bare = lazyregexp.New(`^[a-zA-Z][a-zA-Z0-9=()+%/. _-]*$`)

// words matches words that YAML parses as a boolean or null if they have no quotes.
var words = lazyregexp.New(`^(?i:true|false|null|yes|no|on|off|y|n)$`)

func yamlText(text string) string {
	if bare.MatchString(text) && !words.MatchString(text) && strings.TrimSpace(text) == text {
		return text
	}
	return strconv.QuoteToGraphic(text) // YAML has the same escapes
}
