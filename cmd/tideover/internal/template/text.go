// Package template renders the texts of a configuration: Go templates that may also have
// references to secrets, ${env:NAME} and ${file:path}.
//
// [Parse] checks a text when the configuration is read: the text may only use the given
// [Fields]. [Text.Render] renders it later with data. A template function inserts the
// secrets, so that a secret is never parsed as a template, and the result of a template
// is never parsed as a reference.
package template

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// maxRendered is the most bytes in a rendered text.
const maxRendered = 16 << 20

// Text is a parsed text with templates and references. It is immutable.
type Text struct {
	src  string
	tmpl *template.Template // nil if the text has neither templates nor references
	lit  string             // the result if tmpl is nil
	refs []secret.Ref
	uses []StepUse // results of steps that it uses, sorted

	foreign bool // see [Text.Foreign]
	single  bool // see [Text.IsValue]
}

// Source returns the text before rendering, as it is in the file.
func (t *Text) Source() string { return t.src }

// Refs returns the references of the text.
func (t *Text) Refs() []secret.Ref { return t.refs }

// Steps returns the ids of the steps whose results the text uses, sorted.
func (t *Text) Steps() (ids []string) {
	for _, u := range t.uses {
		if !slices.Contains(ids, u.ID) {
			ids = append(ids, u.ID)
		}
	}
	return ids
}

// Uses returns which results of steps the text uses, sorted.
func (t *Text) Uses() []StepUse { return t.uses }

// Foreign reports whether a part of the result may come from the caller who starts a
// run: the input, a key, an error that quotes them.
func (t *Text) Foreign() bool { return t.foreign }

// RefMode determines whether a text may have references.
type RefMode uint8

// The modes.

const (
	// WithRefs allows references. It is for env values, headers and URLs, whose rendered
	// values are not stored with runs. Every "${" must begin a reference; "$${" stands
	// for "${".
	WithRefs RefMode = iota
	// WithoutRefs refuses references. It is for arguments, which all users of the machine
	// can read, and for bodies and inputs. Any other "${" is plain text, because scripts
	// often use it.
	WithoutRefs
)

// refCall is the name of the template function that inserts a secret. Parse replaces each
// reference by a call of it.
const refCall = "secretRef"

// Parse parses a text whose templates may use the given fields.
func Parse(src string, mode RefMode, fields Fields) (*Text, error) {
	t := &Text{src: src}
	if strings.Contains(src, refCall) {
		return nil, fmt.Errorf("%q is reserved and can't be used in a text", refCall)
	}
	body, err := t.extractRefs(mode)
	if err != nil {
		return nil, err
	}
	if len(t.refs) == 0 && !strings.Contains(body, "{{") {
		t.lit = body
		return t, nil
	}
	tmpl, err := template.New("t").Option("missingkey=error").Funcs(stubs).Parse(body)
	if err != nil {
		return nil, plainError(err)
	}
	t.tmpl = tmpl
	return t, t.check(fields)
}

// extractRefs adds the references of the text to t.refs, and returns the text with a call
// of refCall in place of each.
func (t *Text) extractRefs(mode RefMode) (string, error) {
	var b strings.Builder
	for s := t.src; s != ""; {
		switch {
		case strings.HasPrefix(s, "{{"):
			n := actionLen(s)
			if strings.Contains(s[:n], "${env:") || strings.Contains(s[:n], "${file:") {
				return "", fmt.Errorf("a reference can't be inside {{ }}: %q", textfmt.Clip(s[:n], strictyaml.MaxQuoted))
			}
			b.WriteString(s[:n])
			s = s[n:]
		case strings.HasPrefix(s, "$${") && (mode == WithRefs || IsRef(s[1:])):
			b.WriteString("${")
			s = s[3:]
		case IsRef(s), mode == WithRefs && strings.HasPrefix(s, "${"):
			word, rest, closed := strings.Cut(s, "}")
			if !closed {
				return "", fmt.Errorf("%q has no closing brace; write $${ for a literal ${", textfmt.Clip(s, strictyaml.MaxQuoted))
			}
			ref, err := secret.ParseRef(word + "}")
			switch {
			case err != nil:
				return "", fmt.Errorf("%w; write $${ for a literal ${", err)
			case mode == WithoutRefs:
				return "", fmt.Errorf("%v can't be used here, where others could read it; give it in env, a header or a URL", ref)
			}
			fmt.Fprintf(&b, "{{%s %d}}", refCall, len(t.refs))
			t.refs = append(t.refs, ref)
			s = rest
		default:
			b.WriteByte(s[0])
			s = s[1:]
		}
	}
	return b.String(), nil
}

// IsRef reports whether the text begins with a reference.
func IsRef(s string) bool {
	return strings.HasPrefix(s, "${env:") || strings.HasPrefix(s, "${file:")
}

var comment = lazyregexp.New(`(?s)^\{\{(- )?/\*.*?\*/( -)?\}\}`)

// actionLen returns the length of the {{ }} action at the start of the text. It ignores
// braces in the strings of the action.
func actionLen(s string) int {
	if m := comment.FindString(s); m != "" {
		return len(m)
	}
	quote := byte(0)
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0 && c == '\\' && quote != '`':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '`' || c == '\'':
			quote = c
		case strings.HasPrefix(s[i:], "}}"):
			return i + 2
		}
	}
	return len(s)
}

// Scope is the data with which a text is rendered.
type Scope struct {
	Root    map[string]any // fields of the dot
	Steps   map[string]any // results of steps, for the function step
	Secrets secret.Resolver
	Dir     string // folder that relative paths in references start at
}

// Render executes the templates and inserts the secrets. A nil Text renders to "".
func (t *Text) Render(sc *Scope) (string, error) {
	if t == nil || t.tmpl == nil {
		return t.Literal(), nil
	}
	tmpl, err := t.tmpl.Clone()
	if err != nil {
		return "", err
	}
	var b limited
	err = tmpl.Funcs(t.funcs(sc)).Execute(&b, sc.Root)
	if err != nil {
		return "", plainError(err)
	}
	return b.String(), nil
}

// IsValue reports whether the text is one template, so that [Text.Value] can return any value and
// not only a text.
func (t *Text) IsValue() bool { return t.single }

// Value is [Text.Render] that returns the value of a text which is one template as it is: for
// example a list. The value of any other text is the rendered text.
func (t *Text) Value(sc *Scope) (any, error) {
	if t == nil || !t.single {
		return t.Render(sc)
	}
	tmpl, err := t.tmpl.Clone()
	if err != nil {
		return nil, err
	}
	var value any
	funcs := t.funcs(sc)
	funcs[printCall] = func(_ string, v any) string { value = v; return "" }
	if err := tmpl.Funcs(funcs).Execute(io.Discard, sc.Root); err != nil {
		return nil, plainError(err)
	}
	return value, nil
}

// IsTrue reports whether the value of a condition is true. False, null, 0, an empty text, list or
// map, and the texts "false" and "0" are false.
func IsTrue(v any) bool {
	if s, ok := v.(string); ok {
		s = strings.TrimSpace(s)
		return s != "" && s != "false" && s != "0"
	}
	truth, ok := template.IsTrue(v)
	return ok && truth
}

// Literal returns the result of a text for which [Text.IsConstant] is true, "" for others.
func (t *Text) Literal() string {
	if t == nil {
		return ""
	}
	return t.lit
}

// IsConstant reports whether the text has neither templates nor references.
func (t *Text) IsConstant() bool { return t.tmpl == nil }

var (
	templateNoise = lazyregexp.New(`^template: t:(\d+)(:\d+)?: (executing "t" at )?`)
	ownCall       = lazyregexp.New(`(?s)^<(` + printCall + `|` + refCall + `)\b.*?>: error calling (` + printCall + `|` + refCall + `): `)
)

// plainError removes internal names from an error of text/template.
func plainError(err error) error {
	if errors.Is(err, errTooLong) {
		return errTooLong
	}
	msg := err.Error()
	if m := templateNoise.FindStringSubmatch(msg); m != nil {
		msg = ownCall.ReplaceAllString(msg[len(m[0]):], "")
		if m[1] != "1" {
			msg = "line " + m[1] + ": " + msg
		}
	}
	if strings.Contains(msg, "U+002D '-'") {
		msg += `; for a step whose id has a hyphen write (step "a-b").stdout`
	}
	return &templateError{"template: " + msg, err}
}

// Classify marks an error of [Text.Render] as permanent, unless it is an unavailable
// secret: that may be available at the next attempt.
func Classify(err error) error {
	if errors.Is(err, secret.ErrUnavailable) {
		return err
	}
	return retry.Permanent(err)
}

// templateError is an error of text/template with a readable message. It unwraps to the
// original error, so that errors.Is finds [secret.ErrUnavailable].
type templateError struct {
	msg string
	err error
}

func (e *templateError) Error() string { return e.msg }
func (e *templateError) Unwrap() error { return e.err }

var errTooLong = fmt.Errorf("template: the text is longer than %d bytes", maxRendered)

// limited is a buffer that holds at most maxRendered bytes.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxRendered {
		return 0, errTooLong
	}
	return l.Buffer.Write(p)
}

// printCall is the name under which templates call [printText].
const printCall = "printText"

// Function is a function that templates may use, with its description for the documentation.
type Function struct {
	Name string
	Doc  string
	call any
}

// Functions returns the functions that templates may use besides those of text/template.
func Functions() []Function {
	return []Function{
		{"json", "The value as JSON: `{{ json .input }}`.", toJSON},
		{"b64", "The text in base64.", func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }},
		{"default", "The second value, or the first one if the second is empty, null or false: `{{ default \"x\" .input.y }}`.", orDefault},
		{"trim", "The text without white space at both ends.", strings.TrimSpace},
		{"lower", "The text in lower case.", strings.ToLower},
		{"upper", "The text in upper case.", strings.ToUpper},
		{"step", "The result of the step with this id: `{{ (step \"a-b\").stdout }}`.", func(string) (map[string]any, error) { return nil, errors.New("no data") }},
	}
}

// stubs are all functions of templates, also those that only [Parse] inserts. Parsing needs all of
// them; for rendering, [Text.funcs] replaces the functions that depend on the data.
var stubs = stubFunctions()

func stubFunctions() template.FuncMap {
	all := template.FuncMap{
		refCall:   func(int) (string, error) { return "", errors.New("no data") },
		printCall: printText,
	}
	for _, f := range Functions() {
		all[f.Name] = f.call
	}
	return all
}

// funcs returns the template functions that depend on the data of sc.
func (t *Text) funcs(sc *Scope) template.FuncMap {
	return template.FuncMap{
		"step": func(id string) (any, error) {
			if r, ok := sc.Steps[id]; ok {
				return r, nil
			}
			return nil, fmt.Errorf("step %q is not in needs", id)
		},
		refCall: func(i int) (secretText, error) {
			s, err := sc.Secrets.Resolve(t.refs[i], sc.Dir)
			return secretText(s.Reveal()), err
		},
	}
}

// secretText is the value of a reference. Its type distinguishes it from the values of templates.
type secretText string

func toJSON(v any) (string, error) {
	data, err := EncodeJSON(v)
	return string(data), err
}

// EncodeJSON returns compact JSON without escapes for HTML, which would make it larger.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// orDefault returns v, or other if v is empty, as in {{ default "x" .input.y }}.
func orDefault(other, v any) any {
	if truth, ok := template.IsTrue(v); !ok || !truth {
		return other
	}
	return v
}

// printText returns the text of a value. A value that text/template would print as
// <no value> or in the syntax of Go is an error. written is the action that prints the
// value; the error quotes it.
func printText(written string, v any) (string, error) {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return "", fmt.Errorf(`%s is null or missing; give a value with default, as in default "" (index .input "x")`, written)
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Struct, reflect.Pointer, reflect.Func, reflect.Interface:
		return "", fmt.Errorf("%s is a map or a list; write it with json, as in json .input", written)
	case reflect.Float64, reflect.Float32:
		return strconv.FormatFloat(r.Float(), 'f', -1, 64), nil
	default:
		return fmt.Sprint(v), nil
	}
}
