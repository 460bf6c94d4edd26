package template

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/secret"
)

// Reader reads texts from a file and checks that their references can be resolved.
type Reader struct {
	Dir     string // folder that relative paths in references start at
	Secrets secret.Resolver
}

// RefuseLiteral records the problem that a secret is written out in the file. The message
// does not quote the secret, and says how to write a reference in this mode.
func RefuseLiteral(at strictyaml.Place, literal string, mode RefMode) {
	at.Refuse(literal, writeReference[mode])
}

// Text reads a text with templates. name is the key of the value, such as the name of a
// header: a name like "token" makes a literal value a secret, which is refused.
func (r Reader) Text(at strictyaml.Place, name string, mode RefMode, fields Fields) (*Text, bool) {
	s, ok := at.Text()
	if !ok {
		return nil, false
	}
	literal, found := literalSecret(name, s)
	if !found {
		literal, found = strictyaml.KnownSecret(s)
	}
	if found {
		RefuseLiteral(at, literal, mode)
		return nil, false
	}
	t, err := Parse(s, mode, fields)
	if err != nil {
		at.Bad("%v", err)
		return nil, false
	}
	return t, r.checkRefs(at, t)
}

// checkRefs records a problem and returns false if a reference can't be resolved.
func (r Reader) checkRefs(at strictyaml.Place, t *Text) bool {
	var errs []error
	for _, ref := range t.refs {
		if _, err := r.Secrets.Resolve(ref, r.Dir); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		at.Bad("%s", oneline.Error(err))
		return false
	}
	return true
}

// Secret reads a text that must contain a reference, such as a password or a token.
func (r Reader) Secret(at strictyaml.Place) *SecretText {
	s, ok := at.Text()
	if !ok {
		return nil
	}
	if name, ok := strings.CutPrefix(at.Node.Origin, "env "); ok && !IsRef(s) {
		// An environment variable set the key to the secret itself: use a reference to
		// that variable instead.
		s = fmt.Sprintf("${env:%s}", name)
	}
	t, err := Parse(s, WithRefs, Fields{})
	literal, found := strictyaml.KnownSecret(s)
	switch {
	case found:
		RefuseLiteral(at, literal, WithRefs)
		return nil
	case !strings.Contains(s, "${"), err == nil && len(t.refs) == 0:
		RefuseLiteral(at, s, WithRefs)
		return nil
	case err != nil:
		at.Bad("%v", err)
		return nil
	case !r.checkRefs(at, t):
		return nil
	}
	at.Record(s)
	return NewSecretText(t, r.Dir)
}

// Open reads a text that may have references to secrets, but no templates.
func (r Reader) Open(at strictyaml.Place) *SecretText {
	if strings.Contains(at.Node.Text, "{{") {
		at.Bad("templates can't be used here")
		return nil
	}
	t, ok := r.Text(at, "", WithRefs, Fields{})
	if !ok {
		return nil
	}
	at.Record(t.src)
	return NewSecretText(t, r.Dir)
}

// NamedText is an entry of a map of texts, such as a header.
type NamedText struct {
	Name string
	Text *Text
}

// Map reads a map of texts, and returns them sorted by name. wrong returns what is wrong
// with a name, or "". each is called with every text and its place; it may be nil.
func (r Reader) Map(at strictyaml.Place, fields Fields, wrong func(name string) string, each func(strictyaml.Place, *Text)) (list []NamedText) {
	if !at.IsMap() {
		at.Bad("%v, where a map is expected", at.Node.Kind)
		return nil
	}
	at.CheckKeys(func(key string) (message string, ok bool) {
		if what := wrong(key); what != "" {
			return `"` + key + `" ` + what, false
		}
		return "", true
	})
	for _, p := range at.Node.Pairs {
		here := at.Child(p.Key.Text, p.Val)
		t, ok := r.Text(here, p.Key.Text, WithRefs, fields)
		if !ok {
			continue
		}
		if each != nil {
			each(here, t)
		}
		list = append(list, NamedText{Name: p.Key.Text, Text: t})
		here.Record(t.src)
	}
	slices.SortFunc(list, func(a, b NamedText) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// NamedSecret is a header or a variable whose value may be a secret.
type NamedSecret struct {
	Name  string
	Value *SecretText
}

// SecretMap reads a map of texts that can't use data, and returns them sorted by name.
// wrong returns what is wrong with a name, or "".
func (r Reader) SecretMap(at strictyaml.Place, wrong func(name string) string) (list []NamedSecret) {
	for _, e := range r.Map(at, Fields{}, wrong, nil) {
		list = append(list, NamedSecret{e.Name, NewSecretText(e.Text, r.Dir)})
	}
	return list
}

// writeReference is the message about a secret that is written out in the file, by mode.
var writeReference = map[RefMode]string{
	WithRefs:    "a secret must not be in the file; write a reference: ${env:…} or ${file:…}",
	WithoutRefs: "a secret must not be in the file; write a reference, in env, a header or a URL, because others could read it here: ${env:…} or ${file:…}",
}

// SecretText is a text with references to secrets, such as ${file:./token}. It is safe to
// print: its String has the references, not the secrets.
type SecretText struct {
	text *Text
	dir  string // folder that relative paths in references start at
}

// NewSecretText returns a SecretText for a text that uses secrets but no data. Relative
// paths in its references start at dir.
func NewSecretText(t *Text, dir string) *SecretText { return &SecretText{text: t, dir: dir} }

// Refs returns the references of the text.
func (s *SecretText) Refs() []secret.Ref { return s.text.refs }

// Dir returns the folder that relative paths in references start at.
func (s *SecretText) Dir() string { return s.dir }

// String returns the text with its references.
func (s *SecretText) String() string { return s.text.src }

// Resolve returns the text with its references replaced by the current secrets.
func (s *SecretText) Resolve(r secret.Resolver) (secret.String, error) {
	out, err := s.text.Render(&Scope{Secrets: r, Dir: s.dir})
	return secret.New(out), err
}

var (
	filler = lazyregexp.New(`\{\{.*?\}\}`)
	scheme = lazyregexp.New(`(?i)^\s*(bearer|basic|token|apikey|digest)(\s+|$)`)
)

// literalSecret returns the secret that is written out in a value with a sensitive name:
// everything except templates and the name of an authentication scheme. found is false for
// a value with a reference.
func literalSecret(name, value string) (literal string, found bool) {
	if !secret.IsSetting(name) || strings.Contains(value, "${env:") || strings.Contains(value, "${file:") {
		return "", false
	}
	rest := strings.TrimSpace(scheme.ReplaceAllString(filler.ReplaceAllString(value, ""), ""))
	return rest, rest != ""
}

// refMark and FillMark replace references and templates in the result of [MarkParts].
// These characters can't be in a file.
const refMark, FillMark = "\x01", "\x02"

// MarkParts replaces each template in the text by [FillMark], and each reference by a
// different control character.
func MarkParts(text string) string {
	return reference.ReplaceAllString(filler.ReplaceAllString(text, FillMark), refMark)
}

var reference = lazyregexp.New(`\$\{(env|file):[^}]*\}`)

// HasRef reports whether the text contains a reference.
func HasRef(text string) bool { return reference.MatchString(text) }

// ReplaceRefs returns the text with each reference replaced by the result of replace.
func ReplaceRefs(text string, replace func(ref string) string) string {
	return reference.ReplaceAllStringFunc(text, replace)
}

// URLSecret returns a secret that is written out in a URL: a password, the value of a
// parameter with a sensitive name, or a secret of a known form. Any part of the URL may be a
// reference or a template.
func URLSecret(text string) (literal string, found bool) {
	value, _, _ := strings.Cut(MarkParts(text), "#")
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
	return strictyaml.KnownSecret(text)
}

// markedSecret is [literalSecret] for a value that [MarkParts] has processed.
func markedSecret(name, value string) (literal string, found bool) {
	if strings.Contains(value, refMark) {
		return "", false
	}
	return literalSecret(name, strings.ReplaceAll(value, FillMark, ""))
}
