package api

import (
	"bytes"
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

	"github.com/tideover/tideover/internal/surrogate"
)

// object is a JSON object that was read strictly: each name stands there once,
// and is spelled exactly so. encoding/json takes the last of several, and "Timeout"
// for "timeout", so that what runs might not be what was meant.
type object map[string]json.RawMessage

// body reads the body of a request, which must be a JSON object. No body at all is
// an empty one.
func body(r *http.Request) (object, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return nil, err
		}
		return nil, bad("", "the body can't be read: %v", err)
	}
	if len(data) == 0 {
		return object{}, nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &Problem{Status: http.StatusUnsupportedMediaType, Code: CodeMediaType, Message: "the body must have the Content-Type application/json", Hint: "curl: -H 'Content-Type: application/json'"}
	}
	return parseObject(data)
}

func parseObject(data []byte) (object, error) {
	if !utf8.Valid(data) {
		return nil, bad("", "the body is not UTF-8")
	}
	var o object
	if err := json.Unmarshal(data, &o); err != nil || o == nil {
		if _, other := errors.AsType[*json.UnmarshalTypeError](err); err == nil || other {
			return nil, bad("", "the body is not a JSON object")
		}
		return nil, bad("", "the body is not a JSON object: %v", err)
	}
	if field, twice := Duplicate(data); twice {
		return nil, bad(field, "is given twice")
	}
	return o, nil
}

// Duplicate returns the path of a name that stands twice in one object, in which
// case readers differ about what is meant. The text is valid JSON.
func Duplicate(data []byte) (path string, twice bool) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	type level struct {
		seen map[string]bool // nil in an array
		name string
		key  bool // a name comes next
	}
	var levels []level
	for {
		token, err := dec.Token()
		if err != nil {
			return "", false
		}
		top := len(levels) - 1
		switch {
		case token == json.Delim('}') || token == json.Delim(']'):
			levels = levels[:top]
			top--
		case top >= 0 && levels[top].key:
			name, _ := token.(string)
			levels[top].name = name
			if levels[top].seen[name] {
				var names []string
				for _, l := range levels {
					if l.seen != nil {
						names = append(names, l.name)
					}
				}
				return strings.Join(names, "."), true
			}
			levels[top].seen[name], levels[top].key = true, false
			continue
		case token == json.Delim('{'):
			levels = append(levels, level{seen: map[string]bool{}, key: true})
			continue
		case token == json.Delim('['):
			levels = append(levels, level{})
			continue
		}
		if top >= 0 && levels[top].seen != nil {
			levels[top].key = true
		}
	}
}

// take reads a field and removes it. One that is not there leaves v as it is.
func (o object) take(name string, v any) error {
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
		return bad(name, "is null; leave it out instead")
	}
	if at, half := surrogate.Next(text); at >= 0 {
		return bad(name, `\u%04x is half of a character, and is not text: send both halves, or the character itself`, half)
	}
	if err := json.Unmarshal(text, v); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			err = fmt.Errorf("%s is of the wrong type", excerpt(text))
		}
		return bad(name, "%v", err)
	}
	return nil
}

// rest refuses what nobody has taken.
func (o object) rest(known ...string) error {
	if len(o) == 0 {
		return nil
	}
	name := slices.Min(slices.Collect(maps.Keys(o)))
	p := bad(name, "there is no such field")
	if len(known) > 0 {
		p.Hint = "there are " + strings.Join(known, ", ")
	}
	return p
}

// fields reads the whole object into the targets, in which names and pointers take
// turns.
func (o object) fields(targets ...any) error {
	var known []string
	for i := 0; i < len(targets); i += 2 {
		name, _ := targets[i].(string)
		known = append(known, name)
		if err := o.take(name, targets[i+1]); err != nil {
			return err
		}
	}
	return o.rest(known...)
}
