package template

import (
	"net/url"
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/secret"
)

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
