package template

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"text/template"
)

// printCall is the function that prints every value.
const printCall = "printText"

// stubs are the functions of templates, for parsing; those that depend on the
// data are replaced by [Text.funcs]. urlquery is text/template's own.
var stubs = template.FuncMap{
	"json":    toJSON,
	"b64":     func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"default": orDefault,
	"trim":    strings.TrimSpace,
	"lower":   strings.ToLower,
	"upper":   strings.ToUpper,
	"step":    func(string) (map[string]any, error) { return nil, errors.New("no data") },
	refCall:   func(int) (string, error) { return "", errors.New("no data") },
	printCall: printText,
}

// funcs returns the functions that depend on the data.
func (t *Text) funcs(sc *Scope) template.FuncMap {
	return template.FuncMap{
		"step": func(id string) (any, error) {
			if r, ok := sc.Steps[id]; ok {
				return r, nil
			}
			return nil, fmt.Errorf("step %q is not in needs", id)
		},
		refCall: func(i int) (string, error) {
			s, err := sc.Secrets.Resolve(t.refs[i], sc.Dir)
			return s.Reveal(), err
		},
	}
}

func toJSON(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// orDefault returns the value, or the other when it is empty: default "x" .input.y.
func orDefault(other, v any) any {
	if truth, ok := template.IsTrue(v); !ok || !truth {
		return other
	}
	return v
}

// printText returns a value as it is printed in a text. A value that text/template would
// print as <no value> or in the syntax of Go is an error. The error quotes the action as
// it is written.
func printText(written string, v any) (string, error) {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return "", fmt.Errorf(`%s is null or missing; give a value with default, as in default "" (index .input "x")`, written)
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Struct, reflect.Pointer, reflect.Func, reflect.Interface:
		return "", fmt.Errorf("%s is a map or a list; write it with json, as in json .input", written)
	case reflect.Float64, reflect.Float32:
		return strconv.FormatFloat(r.Float(), 'f', -1, 64), nil
	default:
		return fmt.Sprint(v), nil
	}
}
