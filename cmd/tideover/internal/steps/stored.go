package steps

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/retry"
)

// storedStep is the JSON form of a step that is stored with a run. It has templates and
// references before rendering, never the values of secrets. Because it is a stored
// format, fields may be added but not changed.
type storedStep struct {
	ID            string            `json:"id"`
	Needs         []string          `json:"needs,omitempty"`
	After         []string          `json:"after,omitempty"`
	GiveUp        bool              `json:"give_up,omitempty"`
	Policy        retry.Policy      `json:"policy"`
	Base          string            `json:"base"`
	Dir           string            `json:"dir,omitempty"`
	Run           []string          `json:"run,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
	Inherit       *guard.Inherit    `json:"env_inherit,omitempty"` // nil in a command of an earlier release, which inherits all variables
	Stdin         *string           `json:"stdin,omitempty"`
	RetryExit     exitcode.Set      `json:"retry_exit,omitzero"` // an empty list matches no code; nil is the default
	PermanentExit exitcode.Set      `json:"permanent_exit,omitzero"`
	OutputLimit   int64             `json:"output_limit"`
	Concurrency   int               `json:"concurrency,omitempty"`
	Account       string            `json:"account,omitempty"`
	Method        string            `json:"method,omitempty"`
	Provider      string            `json:"provider,omitempty"`
	URL           *string           `json:"url,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	Body          *string           `json:"body,omitempty"`
	Expect        exitcode.Set      `json:"expect,omitzero"`
	Shapes        Shapes            `json:"shapes,omitempty"`
	storedForm
}

// MarshalJSON encodes the step in its stored form. Equal steps have equal JSON. Secrets
// are references in it.
func (s *Step) MarshalJSON() ([]byte, error) {
	st := storedStep{
		ID: s.ID, Needs: s.Needs, After: s.After, GiveUp: s.GiveUp, Policy: s.Policy, Base: s.Base, Dir: s.Dir,
		RetryExit: s.RetryExit, PermanentExit: s.PermanentExit, OutputLimit: s.OutputLimit, Concurrency: s.Concurrency,
		Account: s.Account, Method: s.Method, Provider: s.Provider, Expect: s.Expect, Shapes: s.Shapes,
		Env: sources(s.Texts.Env), Headers: sources(s.Texts.Headers), Stdin: source(s.Texts.Stdin), URL: source(s.Texts.URL), Body: source(s.Texts.Body),
	}
	for _, t := range s.Texts.Run {
		st.Run = append(st.Run, t.Source())
	}
	if len(s.Texts.Run) > 0 {
		st.Inherit = &s.Inherit
	}
	st.storedForm = s.Form.stored()
	return json.Marshal(st)
}

func source(t *template.Text) *string {
	if t == nil {
		return nil
	}
	return new(t.Source())
}

func sources(list []template.NamedText) map[string]string {
	m := make(map[string]string, len(list))
	for _, e := range list {
		m[e.Name] = e.Text.Source()
	}
	return m
}

// UnmarshalJSON decodes a stored step. An unknown field is an error: the step is from a
// newer release, and without the field it would do something else.
func (s *Step) UnmarshalJSON(data []byte) error {
	var st storedStep
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	dec.UseNumber() // in the values of for-each and input
	if err := dec.Decode(&st); err != nil {
		return fmt.Errorf("stored step: %w", err)
	}
	p := storedTexts{}
	out := Step{
		ID: st.ID, Needs: st.Needs, After: st.After, GiveUp: st.GiveUp, Policy: st.Policy, Base: st.Base, Dir: st.Dir,
		RetryExit: st.RetryExit, PermanentExit: st.PermanentExit, OutputLimit: st.OutputLimit, Concurrency: st.Concurrency,
		Account: st.Account, Method: st.Method, Provider: st.Provider, Expect: st.Expect, Shapes: st.Shapes,
		Texts: Texts{
			Env: p.named("env", st.Env), Headers: p.named("headers", st.Headers),
			Stdin: p.text("stdin", st.Stdin, template.WithoutRefs), URL: p.text("url", st.URL, template.WithRefs), Body: p.text("body", st.Body, template.WithoutRefs),
		},
	}
	for i := range st.Run {
		out.Texts.Run = append(out.Texts.Run, p.text(fmt.Sprintf("run[%d]", i), &st.Run[i], template.WithoutRefs))
	}
	switch {
	case len(out.Texts.Run) == 0:
	case st.Inherit == nil:
		out.Inherit = slices.Clone(guard.InheritAll)
	case len(*st.Inherit) > 0:
		out.Inherit = *st.Inherit
	}
	out.Form = p.form(&st.storedForm)
	if p.err == nil {
		p.err = out.checkKind()
	}
	if p.err != nil {
		return fmt.Errorf("stored step %q: %w", st.ID, p.err)
	}
	*s = out
	return nil
}

// SameWork reports whether two stored steps run the same command or send the same request.
// It ignores policy, concurrency, account and inherited variables. It also ignores needs,
// which the engine compares.
func SameWork(a, b json.RawMessage) bool {
	x, errX := storedWork(a)
	y, errY := storedWork(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// storedWork returns the fields of a stored step that SameWork compares.
func storedWork(text json.RawMessage) (fields map[string]any, err error) {
	v, err := decode(text)
	if err != nil {
		return nil, err
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("a stored step is not a JSON object")
	}
	for _, name := range []string{"policy", "concurrency", "needs", "after", "env_inherit", "account"} {
		delete(fields, name)
	}
	return fields, nil
}

// storedTexts parses templates until one has an error, which it keeps in err.
type storedTexts struct{ err error }

func (p *storedTexts) text(name string, src *string, mode template.RefMode) *template.Text {
	if src == nil || p.err != nil {
		return nil
	}
	t, err := template.Parse(*src, mode, storedFields)
	if err != nil {
		p.err = fmt.Errorf("%s: %w", name, err)
	}
	return t
}

func (p *storedTexts) named(name string, m map[string]string) (list []template.NamedText) {
	for k, src := range m {
		list = append(list, template.NamedText{Name: k, Text: p.text(name+"."+k, &src, template.WithRefs)})
	}
	slices.SortFunc(list, func(a, b template.NamedText) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
