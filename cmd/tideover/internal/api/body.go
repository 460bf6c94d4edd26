package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/internal/surrogate"
)

// object is a JSON object that was parsed strictly: a name must not occur twice, and names are case
// sensitive. encoding/json would use the last of two values and accept "Timeout" for "timeout", so
// that a run could start with another value than the client meant.
type object map[string]json.RawMessage

// body parses the body of a request, which must be a JSON object. A missing body is an empty
// object.
func (r *request) body() (object, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return nil, err
		}
		return nil, control.Invalid("", "the body can't be read: %v", err)
	}
	if len(data) == 0 {
		return object{}, nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, control.NewError(control.CodeMediaType, "the body must have the Content-Type application/json", "curl: -H 'Content-Type: application/json'")
	}
	return parseObject(data)
}

func parseObject(data []byte) (object, error) {
	if !utf8.Valid(data) {
		return nil, control.Invalid("", "the body is not UTF-8")
	}
	var o object
	if err := json.Unmarshal(data, &o); err != nil || o == nil {
		if _, other := errors.AsType[*json.UnmarshalTypeError](err); err == nil || other {
			return nil, control.Invalid("", "the body is not a JSON object")
		}
		return nil, control.Invalid("", "the body is not a JSON object: %v", err)
	}
	if field, twice := control.Duplicate(data); twice {
		return nil, control.Invalid(field, "is given twice")
	}
	return o, nil
}

// decode decodes a field into v, and removes the field from the object. A missing field leaves v
// unchanged.
func (o object) decode(name string, v any) error {
	text, ok := o[name]
	if !ok {
		return nil
	}
	delete(o, name)
	if raw, ok := v.(*json.RawMessage); ok {
		*raw = text
		return nil
	}
	if string(text) == "null" {
		return control.Invalid(name, "is null; leave it out instead")
	}
	if at, half := surrogate.Next(text); at >= 0 {
		return control.Invalid(name, `\u%04x is only half of a surrogate pair: send both halves, or the character itself`, half)
	}
	if err := json.Unmarshal(text, v); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			err = fmt.Errorf("%s is of the wrong type", control.Excerpt(text))
		}
		return control.Invalid(name, "%v", err)
	}
	return nil
}

// fields decodes all fields of the object. targets alternates the name of a field and a pointer to
// its value. A field that is not in targets is an error.
func (o object) fields(targets ...any) error {
	var known []string
	for i := 0; i < len(targets); i += 2 {
		name, _ := targets[i].(string)
		known = append(known, name)
		if err := o.decode(name, targets[i+1]); err != nil {
			return err
		}
	}
	if len(o) == 0 {
		return nil
	}
	return unknown(slices.Min(slices.Collect(maps.Keys(o))), "field", known)
}

// unknown returns the error for an unknown name. what is "field" or "parameter".
func unknown(name, what string, known []string) error {
	e := control.Invalid(name, "unknown %s", what)
	if len(known) > 0 {
		e.Hint = "want one of " + strings.Join(known, ", ")
	}
	return e
}
