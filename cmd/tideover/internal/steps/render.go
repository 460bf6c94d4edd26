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

// EnvVar is an environment variable of a command.
type EnvVar struct {
	Name  string
	Value secret.String // it may contain a secret
}

// Pair returns NAME=value for the environment of a command. The value is not masked.
func (e EnvVar) Pair() string { return e.Name + "=" + e.Value.Reveal() }

// Argv renders the command and its arguments.
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

// Env renders the variables that the step sets, sorted by name.
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

// Stdin renders the standard input of the command.
func (s *Step) Stdin(d Data) (string, error) {
	sc, err := s.scope(d)
	if err != nil {
		return "", err
	}
	return s.part(s.Texts.Stdin, sc, "stdin", "")
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
	sc, err := s.scope(d)
	if err != nil {
		return nil, "", err
	}
	if s.Provider != "" {
		target, err = s.Texts.URL.RenderPath(sc)
	} else {
		target, err = s.Texts.URL.RenderURL(sc, d.AllowHosts)
	}
	if err != nil {
		return nil, "", fmt.Errorf("step %q: http.%s: the value of %q: %w", s.ID, strings.ToLower(s.Method), s.Texts.URL.Source(), err)
	}
	if msg := s.TargetProblem(target); msg != "" { // checked before net/http does, whose error would quote the URL with its secrets
		return nil, "", fmt.Errorf("step %q: http.%s: the value of %q %s", s.ID, strings.ToLower(s.Method), s.Texts.URL.Source(), msg)
	}
	body, err := s.part(s.Texts.Body, sc, "http.body", "")
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
			if req.Host, err = h.Text.RenderHost(sc, req.URL, d.AllowHosts); err != nil {
				return nil, "", fmt.Errorf("step %q: http.headers.%s: the value of %q: %w", s.ID, h.Name, h.Text.Source(), err)
			}
			continue
		}
		value, err := s.part(h.Text, sc, "http.headers."+h.Name, "\x00\r\n")
		if err != nil {
			return nil, "", err
		}
		req.Header.Set(h.Name, value)
	}
	return req, target, nil
}

// part renders one text. A result with a character of refuse is an error. name is the
// place of the text in errors.
func (s *Step) part(t *template.Text, sc *template.Scope, name, refuse string) (string, error) {
	out, err := t.Render(sc)
	if err == nil && refuse != "" && strings.ContainsAny(out, refuse) {
		err = errors.New("the rendered text has a character that is not allowed here, such as a NUL byte or a line break")
	}
	if err != nil {
		return "", fmt.Errorf("step %q: %s: %w", s.ID, name, err)
	}
	return out, nil
}
