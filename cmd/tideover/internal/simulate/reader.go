package simulate

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// reader sets structs from a file, by the names in their tags.
type reader struct {
	places map[string]strictyaml.Place // by path: values in the file
	broken map[string]bool             // by path: values that could not be read
}

var durationType = reflect.TypeFor[time.Duration]()

// value sets a value from the file.
func (r *reader) value(p strictyaml.Place, to reflect.Value) {
	r.places[p.Path()] = p
	ok := true
	switch {
	case to.Type() == durationType:
		var d time.Duration
		d, ok = p.Duration()
		to.SetInt(int64(d))
	case to.Kind() == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		r.value(p, to.Elem())
	case to.Kind() == reflect.Struct:
		ok = p.IsMap()
		r.object(p, to)
	case to.Kind() == reflect.Slice, to.Kind() == reflect.Array:
		ok = r.list(p, to)
	default:
		ok = scalar(p, to)
	}
	if !ok {
		r.broken[p.Path()] = true
	}
}

// scalar sets a string, a number or a boolean.
func scalar(p strictyaml.Place, to reflect.Value) (ok bool) {
	switch to.Kind() {
	case reflect.Bool:
		var v bool
		v, ok = p.Truth()
		to.SetBool(v)
	case reflect.Int:
		var v int
		v, ok = p.Whole()
		to.SetInt(int64(v))
	case reflect.Float64:
		var v float64
		v, ok = p.Number()
		to.SetFloat(v)
	default: // a string: a test checks all tags
		var v string
		v, ok = p.Text()
		to.SetString(v)
	}
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
	fields := fieldsOf(to.Type())
	for name, at := range p.Keys(names(fields)) {
		for _, f := range fields {
			if f.name == name {
				r.value(at, to.FieldByIndex(f.index))
			}
		}
	}
}

// field is a struct field that a file can set.
type field struct {
	name  string
	index []int
	typ   reflect.Type
}

// fieldsOf returns the fields with a yaml tag, in order.
func fieldsOf(t reflect.Type) (fields []field) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name != "" && name != "-" {
			fields = append(fields, field{name, f.Index, f.Type})
		}
	}
	return fields
}

func names(fields []field) (list []string) {
	for _, f := range fields {
		list = append(list, f.name)
	}
	return list
}

// contestant returns the path of a policy in errors of the simulator.
func contestant(i int) string { return fmt.Sprintf("contestants[%d]", i) }
