package steps

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/secret"
)

// EnvVar is a variable of a command.
type EnvVar struct {
	Name  string
	Value secret.String // because it may be made from one
}

// Pair returns NAME=value in the clear, as a command's environment has it.
func (e EnvVar) Pair() string { return e.Name + "=" + e.Value.Reveal() }

// Argv returns the command and its arguments.
func (s *Step) Argv(d Data) ([]string, error) {
	sc, err := s.scope(d)
	if err != nil {
		return nil, err
	}
	argv := make([]string, len(s.Texts.Run))
	for i, t := range s.Texts.Run {
		if argv[i], err = s.part(t, sc, fmt.Sprintf("run[%d]", i), "\x00"); err != nil {
			return nil, err
		}
	}
	if len(argv) == 0 || argv[0] == "" {
		return nil, fmt.Errorf("step %q: run: the command is empty", s.ID)
	}
	return argv, nil
}

// Env returns the step's variables, to be added to those of the server, sorted
// by name.
func (s *Step) Env(d Data) ([]EnvVar, error) {
	sc, err := s.scope(d)
	if err != nil {
		return nil, err
	}
	vars := make([]EnvVar, len(s.Texts.Env))
	for i, e := range s.Texts.Env {
		value, err := s.part(e.Text, sc, "env."+e.Name, "\x00")
		if err != nil {
			return nil, err
		}
		vars[i] = EnvVar{e.Name, secret.New(value)}
	}
	return vars, nil
}

// Stdin returns what the command reads.
func (s *Step) Stdin(d Data) (string, error) {
	sc, err := s.scope(d)
	if err != nil {
		return "", err
	}
	return s.part(s.Texts.Stdin, sc, "stdin", "")
}

// Request returns the request of a step, new for each attempt. Its URL and
// headers may hold secrets: pass what is printed of it through the redactor. If
// the step has a provider, its URL is the path below that, with neither scheme nor
// host.
func (s *Step) Request(ctx context.Context, d Data) (*http.Request, error) {
	sc, err := s.scope(d)
	if err != nil {
		return nil, err
	}
	target, err := s.part(s.Texts.URL, sc, "http."+strings.ToLower(s.Method), "")
	if err != nil {
		return nil, err
	}
	if msg := s.TargetProblem(target); msg != "" { // http would quote it, secrets included
		return nil, fmt.Errorf("step %q: http.%s: what %q makes %s", s.ID, strings.ToLower(s.Method), s.Texts.URL.Source(), msg)
	}
	body, err := s.part(s.Texts.Body, sc, "http.body", "")
	if err != nil {
		return nil, err
	}
	// An empty reader is sent as no body at all.
	req, err := http.NewRequestWithContext(ctx, s.Method, target, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("step %q: http: the request can't be made", s.ID)
	}
	for _, h := range s.Texts.Headers {
		value, err := s.part(h.Text, sc, "http.headers."+h.Name, "\x00\r\n")
		if err != nil {
			return nil, err
		}
		req.Header.Set(h.Name, value)
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			req.Host = value
		}
	}
	return req, nil
}

// part writes one text out and refuses characters that would end it early.
func (s *Step) part(t *template.Text, sc *template.Scope, name, refuse string) (string, error) {
	out, err := t.Render(sc)
	if err == nil && refuse != "" && strings.ContainsAny(out, refuse) {
		err = errors.New("there is a character in it that is not allowed, such as a line break")
	}
	if err != nil {
		return "", fmt.Errorf("step %q: %s: %w", s.ID, name, err)
	}
	return out, nil
}

// Refs returns the references to secrets that the step has.
func (s *Step) Refs() (refs []secret.Ref) {
	for _, t := range s.Texts.all() {
		refs = append(refs, t.Refs()...)
	}
	return refs
}
