package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/secret"
)

// EnvVar is an environment variable of a command.
type EnvVar struct {
	Name  string
	Value secret.String // it may contain a secret
}

// Pair returns NAME=value for the environment of a command. The value is not masked.
func (e EnvVar) Pair() string { return e.Name + "=" + e.Value.Reveal() }

// Argv renders the command and its arguments.
func (s *Step) Argv(d Data) ([]string, error) {
	r, err := s.renderer(d)
	if err != nil {
		return nil, err
	}
	argv := make([]string, len(s.Texts.Run))
	for i, t := range s.Texts.Run {
		if argv[i], err = r.part(t, fmt.Sprintf("run[%d]", i), "\x00"); err != nil {
			return nil, err
		}
	}
	if len(argv) == 0 || argv[0] == "" {
		return nil, fmt.Errorf("step %q: run: the command is empty", s.ID)
	}
	return argv, nil
}

// Env renders the variables that the step sets, sorted by name.
func (s *Step) Env(d Data) ([]EnvVar, error) {
	r, err := s.renderer(d)
	if err != nil {
		return nil, err
	}
	vars := make([]EnvVar, len(s.Texts.Env))
	for i, e := range s.Texts.Env {
		value, err := r.part(e.Text, "env."+e.Name, "\x00")
		if err != nil {
			return nil, err
		}
		vars[i] = EnvVar{e.Name, secret.New(value)}
	}
	return vars, nil
}

// Stdin renders the standard input of the command.
func (s *Step) Stdin(d Data) (string, error) {
	r, err := s.renderer(d)
	if err != nil {
		return "", err
	}
	return r.part(s.Texts.Stdin, "stdin", "")
}

// Request returns a new request for an attempt of a step. Its URL and headers may contain
// secrets, so the caller must redact texts that it prints about the request. If the step has a
// provider, the URL is a path below the provider's base URL, without scheme and host.
func (s *Step) Request(ctx context.Context, d Data) (*http.Request, error) {
	req, _, err := s.newRequest(ctx, d)
	return req, err
}

// newRequest is Request that also returns the URL as it was rendered. Secrets are recognised in that
// text, but perhaps not in the URL of the request, whose characters may be escaped.
func (s *Step) newRequest(ctx context.Context, d Data) (req *http.Request, target string, err error) {
	r, err := s.renderer(d)
	if err != nil {
		return nil, "", err
	}
	if s.Provider != "" {
		target, err = s.Texts.URL.RenderPath(r.scope)
	} else {
		target, err = s.Texts.URL.RenderURL(r.scope, d.AllowHosts)
	}
	if err != nil {
		return nil, "", fmt.Errorf("step %q: http.%s: the value of %q: %w", s.ID, strings.ToLower(s.Method), s.Texts.URL.Source(), err)
	}
	if msg := s.TargetProblem(target); msg != "" { // checked before net/http does, whose error would quote the URL with its secrets
		return nil, "", fmt.Errorf("step %q: http.%s: the value of %q %s", s.ID, strings.ToLower(s.Method), s.Texts.URL.Source(), msg)
	}
	body, err := r.part(s.Texts.Body, "http.body", "")
	if err != nil {
		return nil, "", err
	}
	// NewRequestWithContext sends no body if the reader is empty.
	req, err = http.NewRequestWithContext(ctx, s.Method, target, strings.NewReader(body))
	if err != nil {
		return nil, "", fmt.Errorf("step %q: http: the request can't be made", s.ID)
	}
	for _, h := range s.Texts.Headers {
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			if req.Host, err = h.Text.RenderHost(r.scope, req.URL, d.AllowHosts); err != nil {
				return nil, "", fmt.Errorf("step %q: http.headers.%s: the value of %q: %w", s.ID, h.Name, h.Text.Source(), err)
			}
			continue
		}
		value, err := r.part(h.Text, "http.headers."+h.Name, "\x00\r\n")
		if err != nil {
			return nil, "", err
		}
		req.Header.Set(h.Name, value)
	}
	return req, target, nil
}

// renderer renders the texts of a step.
type renderer struct {
	step  *Step
	scope *template.Scope
}

// renderer returns what renders the texts of the step with the data. If a step that it needs has no
// result, it returns an error; for on-give-up it uses an empty result with exit code -1.
func (s *Step) renderer(d Data) (*renderer, error) {
	steps := map[string]any{}
	for _, id := range s.After {
		if v, ok := d.Values[id]; ok {
			steps[id] = v
			continue
		}
		r, ok := d.Steps[id]
		if !ok && !s.GiveUp {
			return nil, fmt.Errorf("step %q: there is no result of step %q, which it needs", s.ID, id)
		}
		if !ok {
			r.Exit = -1
		}
		steps[id] = r.value()
	}
	sc := d.scope()
	sc.Root["input"], sc.Root["steps"] = normal(d.Input), steps
	if d.Item != nil {
		sc.Root["item"], sc.Root["index"] = normal(d.Item.Value), d.Item.Index
	}
	if d.Result != nil {
		sc.Root["result"] = d.Result
	}
	sc.Steps, sc.Dir = steps, s.Base
	return &renderer{s, sc}, nil
}

// part renders one text. A result with a character of refuse is an error. name is the
// place of the text in errors.
func (r *renderer) part(t *template.Text, name, refuse string) (string, error) {
	out, err := t.Render(r.scope)
	if err == nil && refuse != "" && strings.ContainsAny(out, refuse) {
		err = errors.New("the rendered text has a character that is not allowed here, such as a NUL byte or a line break")
	}
	if err != nil {
		return "", fmt.Errorf("step %q: %s: %w", r.step.ID, name, err)
	}
	return out, nil
}

// value returns the value of a text. name is its place in errors.
func (r *renderer) value(t *template.Text, name string) (any, error) {
	v, err := t.Value(r.scope)
	if err != nil {
		return nil, r.step.failure("%s: %w", name, err)
	}
	return v, nil
}

// items returns the items of for-each.
func (r *renderer) items() ([]Item, error) {
	v, err := renderTree(r.step.ForEach, r.scope, (*template.Text).Value)
	if err != nil {
		return nil, r.step.failure("for-each: %w", err)
	}
	if v == nil {
		return nil, nil
	}
	values, ok := v.([]any)
	if !ok {
		what := "a map"
		switch v.(type) {
		case string:
			what = "a text; if a step printed it as JSON, use .output instead of .stdout"
		case bool, int, int64, float64, json.Number:
			what = "a single value"
		}
		return nil, r.step.failure("for-each: the value is not a list, but %s", what)
	}
	items := make([]Item, len(values))
	for i, e := range values {
		items[i] = Item{i, e}
	}
	return items, nil
}
