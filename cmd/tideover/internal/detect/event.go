package detect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tideover/tideover/internal/textfmt"
)

// path selects values of an event by the names of its fields.
type path []string

// parsePath parses paths such as a.b, a.*.b and **.b; see [Rule].
func parsePath(text string) (path, error) {
	p := path(strings.Split(text, "."))
	for i, name := range p {
		if name == "" {
			return nil, fmt.Errorf("%q is not a path: want one such as error.type", text)
		}
		if name == "**" && (i > 0 || len(p) == 1) {
			return nil, fmt.Errorf("%q: ** is allowed only at the start of a path", text)
		}
	}
	return p, nil
}

// visit calls more with each value at the path, until more returns false; then visit returns false,
// too. Names are visited in sorted order, so that the order is stable.
func (p path) visit(v any, more func(any) bool) bool {
	if len(p) == 0 {
		return more(v)
	}
	deep := p[0] == "**"
	if deep && !p[1:].visit(v, more) {
		return false
	}
	rest := p[1:] // the path in a child
	if deep {
		rest = p
	}
	switch v := v.(type) {
	case map[string]any:
		if p[0] != "*" && !deep {
			child, ok := v[p[0]]
			return !ok || rest.visit(child, more)
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if !rest.visit(v[name], more) {
				return false
			}
		}
	case []any:
		for i, child := range v {
			if (p[0] == "*" || deep || p[0] == strconv.Itoa(i)) && !rest.visit(child, more) {
				return false
			}
		}
	}
	return true
}

// condition is a list of paths and the values that an event must have there.
type condition []wanted

type wanted struct {
	text   string // the path as written in the pack
	path   path
	values []string
}

func compileCondition(spec map[string]any) (condition, error) {
	if len(spec) == 0 {
		return nil, errors.New("event is missing")
	}
	var c condition
	for _, text := range slices.Sorted(maps.Keys(spec)) {
		p, err := parsePath(text)
		if err != nil {
			return nil, fmt.Errorf("event: %w", err)
		}
		list, ok := spec[text].([]any)
		if !ok {
			list = []any{spec[text]}
		}
		w := wanted{text: text, path: p}
		for _, v := range list {
			value, ok := scalar(v)
			if !ok {
				return nil, fmt.Errorf("event.%s: %v is not a string, a number, true or false", text, v)
			}
			w.values = append(w.values, value)
		}
		c = append(c, w)
	}
	return c, nil
}

// fails returns a description of the first part of the condition that the event does not meet; "" if
// it meets all.
func (c condition) fails(event any) string {
	for _, w := range c {
		found, held := "nothing", false
		w.path.visit(event, func(v any) bool {
			if text, ok := scalar(v); ok {
				found, held = textfmt.TruncateWithin(text, 60, "..."), w.has(text)
			}
			return !held
		})
		if !held {
			return fmt.Sprintf("%s is %s, not %s", w.text, found, strings.Join(w.values, " or "))
		}
	}
	return ""
}

// has reports whether the text is one of the wanted values. In a pack, *text* means any value that
// contains text, and !text means any value except text.
func (w *wanted) has(text string) bool {
	return slices.ContainsFunc(w.values, func(v string) bool {
		if other, ok := strings.CutPrefix(v, "!"); ok {
			return text != other
		}
		if part, ok := strings.CutPrefix(v, "*"); ok {
			return strings.Contains(text, strings.TrimSuffix(part, "*"))
		}
		return text == v
	})
}

// scalar returns a value as text, so that 1 in YAML and 1 in JSON are equal.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case nil, map[string]any, []any:
		return "", false
	case float64: // the pack was stored as JSON
		return strconv.FormatFloat(v, 'f', -1, 64), true
	default:
		return fmt.Sprint(v), true
	}
}

// eventIn returns the part of the line that looks like an event or a list of events; nil if there
// is none. It also handles data lines of server-sent events, and terminal sequences around the
// event.
func (n *normalizer) eventIn(line []byte) []byte {
	n.buf = n.buf[:0]
	for line = bytes.TrimSpace(line); len(line) > 0 && line[0] == 0x1b; {
		line = n.escape(line)
	}
	line = bytes.TrimLeft(bytes.TrimPrefix(line, []byte("data:")), " ")
	if !beginsEvent(line) {
		return nil
	}
	end := byte('}')
	if line[0] == '[' {
		end = ']'
	}
	last := bytes.LastIndexByte(line, end)
	if last < 0 || last+1 < len(line) && line[last+1] != 0x1b {
		return nil
	}
	return line[:last+1]
}

// beginsEvent reports whether a line begins like a JSON object or a list of them.
func beginsEvent(line []byte) bool {
	line = bytes.TrimLeft(bytes.TrimPrefix(line, []byte("[")), " ")
	rest, ok := bytes.CutPrefix(line, []byte("{"))
	return ok && bytes.HasPrefix(bytes.TrimLeft(rest, " "), []byte(`"`))
}

// decode returns the events of a line; none if it is not JSON.
func decode(line []byte) []any {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber() // do not round an epoch
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	if list, ok := v.([]any); ok {
		return list
	}
	return []any{v}
}
