package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// Kinds of fields of the form that starts a run.
const (
	fieldText   = "text"
	fieldLines  = "lines" // a text of several lines
	fieldNumber = "number"
	fieldBool   = "bool"
	fieldJSON   = "json" // a list, a map, null, or any JSON
)

// maxFields is the largest number of fields of a form. A larger input is edited as JSON.
const maxFields = 40

// startForm is the content of the page with the form that starts a run.
type startForm struct {
	Workflow string
	Action   string // URL to which the form is sent
	Back     string // URL of the page to return to
	Other    string // URL of the form with one field for JSON, or with fields; "" if there is no other
	AsJSON   bool   // the form has one field, for the whole input
	Fields   []formField
	Key      formField
	Problem  string // what is wrong with the form as a whole
	Wrong    bool   // something is wrong
	Hidden   bool   // secrets in the default input are not shown
	Dialog   bool   // shown in a dialog, not as a page
}

// formField is a field of the form.
type formField struct {
	Name    string // of the HTML element; the name in the input follows the prefix
	ID      string
	Label   string
	Kind    string
	Value   string
	Default string // the text that is sent if the user changes nothing; then the input does not contain the field
	Problem string // what is wrong with the value
}

// fieldPrefix precedes the names of the input's fields in the form.
const fieldPrefix = "input."

// startPage shows the form that starts a run, and starts the run.
type startPage struct{ *Layout }

func (h startPage) serve(w http.ResponseWriter, r *http.Request) {
	f, err := h.form(r.Context(), r.PathValue("workflow"), r.URL.Query().Has("json"))
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	h.showForm(w, r, http.StatusOK, f)
}

func (h startPage) showForm(w http.ResponseWriter, r *http.Request, status int, f *startForm) {
	f.Dialog = fromHTMX(r)
	h.showDialog(w, r, status, "start", Page{Title: "Start " + f.Workflow, Place: "workflows", Body: f})
}

// form returns the form for a workflow, with the default input. asJSON asks for one field with the
// whole input.
func (h startPage) form(ctx context.Context, name string, asJSON bool) (*startForm, error) {
	flow, ok := h.control.Workflows.Get(name)
	if !ok {
		return nil, control.NewError(control.CodeNotFound, fmt.Sprintf("unknown workflow %q", control.Excerpt(name)), "")
	}
	if err := control.Startable(name); err != nil {
		return nil, err
	}
	u := ActionURL(WorkflowURL(name), "start")
	f := &startForm{Workflow: name, Action: u, Back: WorkflowURL(name), Key: formField{Name: "key", ID: "start-key", Label: "Key (optional)"}}
	given := h.defaultInput(flow)
	shown := h.Redact(string(given))
	f.Hidden = shown != string(given)
	fields := fieldsOfInput(json.RawMessage(shown))
	if fields == nil {
		fields = fieldsOfType(flow.InputType())
	}
	if f.AsJSON = asJSON || len(fields) == 0 || len(fields) > maxFields; f.AsJSON {
		text := pretty(shown)
		f.Fields = []formField{{Name: "input", ID: "start-input", Label: "Input (JSON)", Kind: fieldJSON, Value: text, Default: text}}
		if asJSON && len(fields) > 0 && len(fields) <= maxFields {
			f.Other = u
		}
		if asJSON {
			f.Action = u + "?json"
		}
		return f, nil
	}
	f.Fields, f.Other = fields, u+"?json"
	for i := range f.Fields {
		f.Fields[i].ID = fmt.Sprintf("start-%d", i)
	}
	return f, nil
}

// defaultInput returns the input of a run that is started without one; nil if there is none, or if it
// can't be computed.
func (h startPage) defaultInput(flow *engine.Workflow) json.RawMessage {
	text, err := flow.DefaultInput()
	if err != nil || string(text) == "null" {
		return nil
	}
	return text
}

// fieldsOfInput returns a field for each field of the default input. It returns nil if the input is
// not a JSON object with fields.
func fieldsOfInput(input json.RawMessage) (list []formField) {
	var object map[string]json.RawMessage
	if json.Unmarshal(input, &object) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		f := formField{Name: fieldPrefix + name, Label: name, Kind: fieldJSON, Value: pretty(string(object[name]))}
		var value any
		_ = json.Unmarshal(object[name], &value) // can't fail: it is a part of a valid text
		switch v := value.(type) {
		case string:
			f.Kind, f.Value = textKind(v), v
		case float64:
			f.Kind = fieldNumber
		case bool:
			f.Kind = fieldBool
		}
		f.Default = f.Value
		list = append(list, f)
	}
	return list
}

// textKind returns the kind of field for a text.
func textKind(text string) string {
	if strings.Contains(text, "\n") || len(text) > 200 {
		return fieldLines
	}
	return fieldText
}

// fieldsOfType returns a field for each field of a struct, which may be behind a pointer. It returns
// nil for other types, and for types that decode JSON themselves.
func fieldsOfType(t reflect.Type) (list []formField) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct || decodesItself(t) {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "-" && options == "" || strings.Contains(options, "string") {
			continue
		}
		name = cmp.Or(name, f.Name)
		list = append(list, formField{Name: fieldPrefix + name, Label: name, Kind: kindOf(f.Type)})
	}
	for i := range list {
		if list[i].Kind == fieldBool {
			list[i].Value, list[i].Default = "false", "false"
		}
	}
	return list
}

func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]())
}

// kindOf returns the kind of field for a type.
func kindOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return fieldJSON
	case reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()):
		return fieldText
	}
	switch t.Kind() {
	case reflect.String:
		return fieldText
	case reflect.Bool:
		return fieldBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16,
		reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return fieldNumber
	}
	return fieldJSON
}

// start starts a run with the input of the form. If a field is wrong, it shows the form again, with
// the problem beside the field.
func (h startPage) start(w http.ResponseWriter, r *http.Request) {
	if err := parseForm(r); err != nil {
		h.Fail(w, r, err)
		return
	}
	f, err := h.form(r.Context(), r.PathValue("workflow"), r.URL.Query().Has("json"))
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	input := f.fill(r)
	if f.Key.Value != "" {
		if err := control.CheckKey(f.Key.Value); err != nil {
			f.Key.Problem = err.Error()
		}
	}
	if f.check(); !f.Wrong {
		run, err := h.control.Runs.Start(r.Context(), control.Start{Workflow: f.Workflow, Input: input, Key: f.Key.Value}, ActorOf(r))
		if err == nil {
			did := "start"
			switch {
			case run.InputDiffers:
				did = "differs"
			case run.Existing:
				did = "existing"
			}
			h.forward(w, r, RunURL(run.ID)+"?did="+did)
			return
		}
		if !errors.Is(err, engine.ErrInput) && control.AsError(err).Status != http.StatusBadRequest {
			h.Fail(w, r, err)
			return
		}
		f.explain(err, h.Redact)
	}
	h.showForm(w, r, http.StatusUnprocessableEntity, f)
}

// fill sets the values of the fields to those of the request, checks them, and returns the input: the
// fields that the user has changed. It is nil if there are none.
func (f *startForm) fill(r *http.Request) json.RawMessage {
	f.Key.Value = strings.TrimSpace(r.PostForm.Get("key"))
	input := map[string]json.RawMessage{}
	for i := range f.Fields {
		p := &f.Fields[i]
		p.Value = strings.ToValidUTF8(strings.ReplaceAll(r.PostForm.Get(p.Name), "\r\n", "\n"), "\uFFFD")
		if p.Kind == fieldBool {
			p.Value = "false"
			if r.PostForm.Has(p.Name) {
				p.Value = "true"
			}
		}
		if strings.TrimSpace(p.Value) == strings.TrimSpace(p.Default) {
			continue
		}
		value, problem := p.json()
		if p.Problem = problem; problem == "" {
			input[strings.TrimPrefix(p.Name, fieldPrefix)] = value
		}
	}
	switch {
	case len(input) == 0:
		return nil
	case f.AsJSON:
		return input["input"]
	}
	text, _ := json.Marshal(input) //nolint:errcheck // can't fail: the values are valid JSON
	return text
}

// json returns the value of the field as JSON, or what is wrong with it.
func (p *formField) json() (value json.RawMessage, problem string) {
	switch p.Kind {
	case fieldText, fieldLines:
		text, _ := json.Marshal(p.Value) //nolint:errcheck // can't fail: a string
		return text, ""
	case fieldNumber:
		text := strings.TrimSpace(p.Value)
		var n json.Number
		if err := json.Unmarshal([]byte(text), &n); err != nil || strings.HasPrefix(text, `"`) || text == "null" {
			return nil, fmt.Sprintf("%q is not a number such as 12 or 0.5", control.Excerpt(text))
		}
		return json.RawMessage(text), ""
	}
	text := strings.TrimSpace(p.Value)
	if p.Kind == fieldJSON && text == "" {
		return nil, "is empty: write JSON such as [1, 2] or {\"a\": 1}, or null"
	}
	return compactJSON(p.Value)
}

// check sets Wrong if a field has a problem.
func (f *startForm) check() {
	f.Wrong = f.Problem != "" || f.Key.Problem != "" || slices.ContainsFunc(f.Fields, func(p formField) bool { return p.Problem != "" })
}

// explain adds the error of the engine to the field that it is about, or to the form.
func (f *startForm) explain(err error, redact Redactor) {
	f.Wrong = true
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		name, _, _ := strings.Cut(wrong.Field, ".")
		for i := range f.Fields {
			if p := &f.Fields[i]; p.Name == fieldPrefix+name {
				p.Problem = fmt.Sprintf("want %s, but it is %s", wrong.Type, wrong.Value)
				return
			}
		}
	}
	if e := control.AsError(err); e.Field == "key" {
		f.Key.Problem = redact(e.Message)
		return
	}
	f.Problem = redact(err.Error())
	if f.AsJSON {
		f.Fields[0].Problem, f.Problem = f.Problem, ""
	}
}
