package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/secret"
)

// What to do about a secret in the file, by where references can be used.
var writeReference = map[refMode]string{
	withRefs:    "a secret must not stand in the file; write a reference: ${env:…} or ${file:…}",
	withoutRefs: "a secret must not stand in the file; write a reference, in env, a header or a URL, because others could read it here: ${env:…} or ${file:…}",
}

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
	filler = lazyregexp.New(`\{\{.*?\}\}`)
	scheme = lazyregexp.New(`(?i)^\s*(bearer|basic|token|apikey|digest)(\s+|$)`)
)

// literalSecret returns what looks like a secret written out in a value with a
// sensitive name: all that is left without references, templates and the name
// of a scheme.
func literalSecret(name, value string) (literal string, found bool) {
	if !secret.IsSetting(name) || strings.Contains(value, "${env:") || strings.Contains(value, "${file:") {
		return "", false
	}
	rest := strings.TrimSpace(scheme.ReplaceAllString(filler.ReplaceAllString(value, ""), ""))
	return rest, rest != ""
}

// What a reference and a template are in a URL whose parts are looked for: in a
// file there are no such characters.
const refMark, fillMark = "\x01", "\x02"

var reference = lazyregexp.New(`\$\{(env|file):[^}]*\}`)

// urlSecret returns a secret that stands in a URL: a password, or a parameter with
// a sensitive name. The URL need not be one yet: references may be any part of it.
func urlSecret(value string) (literal string, found bool) {
	value = reference.ReplaceAllString(filler.ReplaceAllString(value, fillMark), refMark)
	value, _, _ = strings.Cut(value, "#")
	value, query, _ := strings.Cut(value, "?")
	_, authority, _ := strings.Cut(value, "://")
	authority, _, _ = strings.Cut(authority, "/")
	user := authority[:max(strings.LastIndexByte(authority, '@'), 0)]
	if _, password, ok := strings.Cut(user, ":"); ok {
		if l, found := markedSecret("password", password); found {
			return l, true
		}
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, v, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if l, found := markedSecret(name, v); found {
			return l, true
		}
	}
	return "", false
}

// markedSecret is [literalSecret] for a value with marks.
func markedSecret(name, value string) (literal string, found bool) {
	if strings.Contains(value, refMark) {
		return "", false
	}
	return literalSecret(name, strings.ReplaceAll(value, fillMark, ""))
}

// refuseLiteral records a secret that stands in the file, without repeating it.
func (l *loader) refuseLiteral(at strictyaml.Place, literal string, mode refMode) {
	at.Refuse(literal, writeReference[mode])
}

// text reads a text with templates, and checks that its references lead
// somewhere. name is what the value is called where it is used.
func (l *loader) text(at strictyaml.Place, name string, mode refMode, fields roots) (*text, bool) {
	s, ok := at.Text()
	if !ok {
		return nil, false
	}
	literal, found := literalSecret(name, s)
	if !found {
		literal, found = strictyaml.KnownSecret(s)
	}
	if found {
		l.refuseLiteral(at, literal, mode)
		return nil, false
	}
	t, err := parseText(s, mode, fields)
	if err != nil {
		at.Bad("%v", err)
		return nil, false
	}
	return t, l.resolvable(at, t)
}

// resolvable records references that lead nowhere.
func (l *loader) resolvable(at strictyaml.Place, t *text) bool {
	var errs []error
	for _, ref := range t.refs {
		if _, err := l.cfg.secrets.Resolve(ref, l.dir); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		at.Bad("%s", oneline.Error(err))
		return false
	}
	return true
}

// secretText reads a text that is a secret as a whole.
func (l *loader) secretText(at strictyaml.Place) *SecretText {
	s, ok := at.Text()
	if !ok {
		return nil
	}
	if name, ok := strings.CutPrefix(at.Node.Origin, "env "); ok && !isRef(s) {
		// The variable holds the secret itself; from here on it is referred to.
		s = fmt.Sprintf("${env:%s}", name)
	}
	if literal, found := strictyaml.KnownSecret(s); found {
		l.refuseLiteral(at, literal, withRefs)
		return nil
	}
	if !strings.Contains(s, "${") {
		l.refuseLiteral(at, s, withRefs)
		return nil
	}
	t, err := parseText(s, withRefs, roots{})
	if err == nil && len(t.refs) == 0 {
		l.refuseLiteral(at, s, withRefs)
		return nil
	}
	if err != nil {
		at.Bad("%v", err)
		return nil
	}
	if !l.resolvable(at, t) {
		return nil
	}
	at.Record(s)
	return &SecretText{text: t, dir: l.dir}
}

// learnProxies tells the redactor of proxies that want a password. Nobody refers to
// these variables: net/http reads them, commands inherit them, and both repeat them.
func (e environment) learnProxies(r *secret.Redactor) {
	if r == nil {
		return
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		value := e[name]
		if !strings.Contains(value, "@") {
			continue
		}
		if !strings.Contains(value, "://") {
			value = "http://" + value // as net/http reads it
		}
		r.Add(value)
	}
}
