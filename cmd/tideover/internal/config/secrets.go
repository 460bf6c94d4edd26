package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/secret"
)

const writeReference = "a secret must not stand in the file; write a reference: ${env:…} or ${file:…}"

// SecretText is a text with references to secrets in it, such as
// ${file:./token}. It prints as it is written, which is no secret.
type SecretText struct {
	text *text
	dir  string
}

// String returns the text with its references.
func (s *SecretText) String() string { return s.text.src }

// Resolve looks up the references.
func (s *SecretText) Resolve(r secret.Resolver) (secret.String, error) {
	out, err := s.text.render(&scope{secrets: r, dir: s.dir})
	return secret.New(out), err
}

var (
	wordBreak = regexp.MustCompile(`[^a-zA-Z0-9]+|([a-z0-9])([A-Z])`)
	filler    = regexp.MustCompile(`\{\{.*?\}\}`)
	scheme    = regexp.MustCompile(`(?i)^\s*(bearer|basic|token|apikey|digest)(\s+|$)`)
)

// sensitive reports whether what has this name is likely to be a secret: its
// last word says so, as in API_TOKEN, x-api-key or dbPassword.
func sensitive(name string) bool {
	words := strings.Fields(strings.ToLower(wordBreak.ReplaceAllString(name, "$1 $2")))
	if len(words) == 0 {
		return false
	}
	switch last := words[len(words)-1]; last {
	case "token", "password", "passwd", "passphrase", "pwd", "secret", "apikey", "authorization", "credential", "credentials", "cookie":
		return true
	case "key":
		return len(words) > 1 && strings.Contains("api access secret private auth signing encryption", words[len(words)-2])
	default:
		return false
	}
}

// literalSecret returns what looks like a secret written out in a value with a
// sensitive name: all that is left without references, templates and the name
// of a scheme.
func literalSecret(name, value string) (literal string, found bool) {
	if !sensitive(name) || strings.Contains(value, "${env:") || strings.Contains(value, "${file:") {
		return "", false
	}
	rest := strings.TrimSpace(scheme.ReplaceAllString(filler.ReplaceAllString(value, ""), ""))
	return rest, rest != ""
}

// urlSecret returns a secret that stands in a URL: a password, or a parameter
// with a sensitive name.
func urlSecret(value string) (literal string, found bool) {
	u, err := url.Parse(value)
	if err != nil {
		return "", false
	}
	if p, ok := u.User.Password(); ok {
		if l, found := literalSecret("password", p); found {
			return l, true
		}
	}
	for name, values := range u.Query() {
		for _, v := range values {
			if l, found := literalSecret(name, v); found {
				return l, true
			}
		}
	}
	return "", false
}

// refuseLiteral records a secret that stands in the file, without repeating it.
func (l *loader) refuseLiteral(at place, literal string) {
	if len(l.problems) < maxProblems {
		l.literals = append(l.literals, literal, at.node.text)
	}
	l.bad(at, "%s", writeReference)
}

// text reads a text with templates, and checks that its references lead
// somewhere. name is what the value is called where it is used.
func (l *loader) text(at place, name string, mode refMode, fields roots) (*text, bool) {
	s, ok := l.scalar(at)
	if !ok {
		return nil, false
	}
	if literal, found := literalSecret(name, s); found {
		l.refuseLiteral(at, literal)
		return nil, false
	}
	t, err := parseText(s, mode, fields)
	if err != nil {
		l.bad(at, "%v", err)
		return nil, false
	}
	return t, l.resolvable(at, t)
}

// resolvable records references that lead nowhere.
func (l *loader) resolvable(at place, t *text) bool {
	var errs []error
	for _, ref := range t.refs {
		if _, err := l.cfg.secrets.Resolve(ref, l.dir); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		l.bad(at, "%s", oneLine(err))
		return false
	}
	return true
}

// secretText reads a text that is a secret as a whole.
func (l *loader) secretText(at place) *SecretText {
	s, ok := l.scalar(at)
	if !ok {
		return nil
	}
	if name, ok := strings.CutPrefix(at.node.origin, "env "); ok && !isRef(s) {
		// The variable holds the secret itself; from here on it is referred to.
		s = fmt.Sprintf("${env:%s}", name)
	}
	if !strings.Contains(s, "${") {
		l.refuseLiteral(at, s)
		return nil
	}
	t, err := parseText(s, withRefs, roots{})
	if err == nil && len(t.refs) == 0 {
		l.refuseLiteral(at, s)
		return nil
	}
	if err != nil {
		l.bad(at, "%v", err)
		return nil
	}
	if !l.resolvable(at, t) {
		return nil
	}
	l.value(at, s)
	return &SecretText{text: t, dir: l.dir}
}
