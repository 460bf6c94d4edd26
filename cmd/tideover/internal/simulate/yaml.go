package simulate

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// YAML returns the file as YAML for [Parse]. It leaves out zero values.
func (f File) YAML() string {
	var b strings.Builder
	writeFields(&b, reflect.ValueOf(f.Scenario), "")
	if len(f.Policies) > 0 {
		b.WriteString(policiesKey + ":\n")
	}
	for _, c := range f.Policies {
		if c.Breaker == nil {
			fmt.Fprintf(&b, "  %s: %s\n", yamlText(c.Name), yamlText(c.Policy.String()))
			continue
		}
		fmt.Fprintf(&b, "  %s:\n", yamlText(c.Name))
		writeFields(&b, reflect.ValueOf(equipment{Policy: c.Policy.String()}), "    ")
		if *c.Breaker != (breaker.Config{}) {
			writeValue(&b, "breaker", reflect.ValueOf(c.Breaker), "    ")
		} else {
			b.WriteString("    breaker: {}\n")
		}
	}
	return b.String()
}

// writeFields writes the fields of a struct that are not zero, one per line.
func writeFields(b *strings.Builder, v reflect.Value, indent string) {
	for _, f := range fieldsOf(v.Type()) {
		if at := v.FieldByIndex(f.index); !at.IsZero() {
			writeValue(b, f.name, at, indent)
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

// words matches words that YAML does not read as text.
var words = lazyregexp.New(`^(?i:true|false|null|yes|no|on|off|y|n)$`)

func yamlText(text string) string {
	if bare.MatchString(text) && !words.MatchString(text) && strings.TrimSpace(text) == text {
		return text
	}
	return strconv.QuoteToGraphic(text) // YAML has the same escapes
}
