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
	Dir     string // where relative paths of references start
	Secrets secret.Resolver
}

// RefuseLiteral records a secret that stands in the file, without repeating it.
func RefuseLiteral(at strictyaml.Place, literal string, mode RefMode) {
	at.Refuse(literal, writeReference[mode])
}

// Text reads a text with templates. The value is called name where it is used.
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

// checkRefs records references that can't be resolved.
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

// Secret reads a text that is a secret as a whole.
func (r Reader) Secret(at strictyaml.Place) *SecretText {
	s, ok := at.Text()
	if !ok {
		return nil
	}
	if name, ok := strings.CutPrefix(at.Node.Origin, "env "); ok && !IsRef(s) {
		// The variable holds the secret itself: refer to the variable.
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

// Open reads a text that may have references to secrets, and no templates.
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

// Map reads a map of texts, sorted by name. wrong returns what is wrong with a name, or
// ""; each is called with every text and its place, and may be nil.
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

// SecretMap reads a map of texts without templates, sorted by name. wrong returns what is
// wrong with a name, or "".
func (r Reader) SecretMap(at strictyaml.Place, wrong func(name string) string) (list []NamedSecret) {
	for _, e := range r.Map(at, Fields{}, wrong, nil) {
		list = append(list, NamedSecret{e.Name, NewSecretText(e.Text, r.Dir)})
	}
	return list
}

// writeReference is the message about a secret in the file.
var writeReference = map[RefMode]string{
	WithRefs:    "a secret must not be in the file; write a reference: ${env:…} or ${file:…}",
	WithoutRefs: "a secret must not be in the file; write a reference, in env, a header or a URL, because others could read it here: ${env:…} or ${file:…}",
}

// SecretText is a text with references to secrets, such as ${file:./token}. It prints
// as it is written, which is no secret.
type SecretText struct {
	text *Text
	dir  string // where relative paths of references start
}

// NewSecretText returns the text as one that needs no data but secrets. Relative paths
// of its references start at dir.
func NewSecretText(t *Text, dir string) *SecretText { return &SecretText{text: t, dir: dir} }

// Refs returns the references of the text.
func (s *SecretText) Refs() []secret.Ref { return s.text.refs }

// Dir returns the folder at which relative paths of references start.
func (s *SecretText) Dir() string { return s.dir }

// String returns the text with its references.
func (s *SecretText) String() string { return s.text.src }

// Resolve looks up the references.
func (s *SecretText) Resolve(r secret.Resolver) (secret.String, error) {
	out, err := s.text.Render(&Scope{Secrets: r, Dir: s.dir})
	return secret.New(out), err
}

var (
	filler = lazyregexp.New(`\{\{.*?\}\}`)
	scheme = lazyregexp.New(`(?i)^\s*(bearer|basic|token|apikey|digest)(\s+|$)`)
)

// literalSecret returns the part of a value with a sensitive name that looks like a
// secret: all that is left without references, templates and the name of a scheme.
func literalSecret(name, value string) (literal string, found bool) {
	if !secret.IsSetting(name) || strings.Contains(value, "${env:") || strings.Contains(value, "${file:") {
		return "", false
	}
	rest := strings.TrimSpace(scheme.ReplaceAllString(filler.ReplaceAllString(value, ""), ""))
	return rest, rest != ""
}

// refMark and FillMark stand for a reference and for a template in the result of
// [MarkParts]. A file can't have these characters.
const refMark, FillMark = "\x01", "\x02"

// MarkParts replaces each template by [FillMark] and each reference by another mark.
func MarkParts(text string) string {
	return reference.ReplaceAllString(filler.ReplaceAllString(text, FillMark), refMark)
}

var reference = lazyregexp.New(`\$\{(env|file):[^}]*\}`)

// HasRef reports whether there is a reference in the text.
func HasRef(text string) bool { return reference.MatchString(text) }

// ReplaceRefs replaces each reference in the text.
func ReplaceRefs(text string, replace func(ref string) string) string {
	return reference.ReplaceAllStringFunc(text, replace)
}

// URLSecret returns a secret that stands in a URL: a password, or a parameter with a
// sensitive name. References and templates may be any part of the URL.
func URLSecret(value string) (literal string, found bool) {
	value = MarkParts(value)
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
	return literalSecret(name, strings.ReplaceAll(value, FillMark, ""))
}
