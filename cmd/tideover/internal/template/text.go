// Package template renders the texts of a configuration: Go templates that may also have
// references to secrets, ${env:NAME} and ${file:path}.
//
// [Parse] checks a text when the configuration is read: the fields and steps that it
// uses must be among the [Fields] of its place. [Text.Render] writes it out when it is
// needed. Secrets are inserted by a function, so that neither a secret is read as a
// template nor the result of a template as a reference.
package template

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"text/template"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// maxRendered is the number of bytes that a rendered text has at most.
const maxRendered = 16 << 20

// Text is a text with templates and references, which are written out when it is
// rendered. It never changes.
type Text struct {
	src  string
	tmpl *template.Template // nil if there is nothing to write out
	lit  string             // the result in that case
	refs []secret.Ref
	uses []string // steps whose results it uses

	foreign bool // see [Text.Foreign]
}

// Source returns the text as it is written.
func (t *Text) Source() string { return t.src }

// Refs returns the references of the text.
func (t *Text) Refs() []secret.Ref { return t.refs }

// Steps returns the ids of the steps whose results the text uses, sorted.
func (t *Text) Steps() []string { return t.uses }

// Foreign reports whether a part of the result may come from the caller who starts a
// run: the input, a key, an error that quotes them.
func (t *Text) Foreign() bool { return t.foreign }

// RefMode is whether a text may have references.
type RefMode uint8

// The modes.

const (
	// WithRefs is for env values, headers and URLs, which are not stored with runs.
	// Every "${" must begin a reference; "$${" stands for "${".
	WithRefs RefMode = iota
	// WithoutRefs is for arguments, which all users of the machine can read, and for
	// bodies and inputs. A reference is refused; any other "${" is not special, because
	// scripts use it often.
	WithoutRefs
)

// refCall is the function that replaces a reference.
const refCall = "secretRef"

// Parse parses a text whose templates may use the given fields.
func Parse(src string, mode RefMode, fields Fields) (*Text, error) {
	t := &Text{src: src}
	if strings.Contains(src, refCall) {
		return nil, fmt.Errorf("%q can't be used in a text", refCall)
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

// extractRefs returns the text with a call for every reference.
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

// actionLen returns the length of the action at the start of the text. Braces in
// its strings do not end it.
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

// Scope is the data of one rendering, in the form that templates walk.
type Scope struct {
	Root    map[string]any
	Steps   map[string]any // results of steps, for the function step
	Secrets secret.Resolver
	Dir     string // where relative paths of references start
}

// Render writes the text out. A nil Text is empty.
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

// Literal returns the result of a text that [Text.IsConstant], and "" for others.
func (t *Text) Literal() string {
	if t == nil {
		return ""
	}
	return t.lit
}

// IsConstant reports whether the result does not depend on the data.
func (t *Text) IsConstant() bool { return t.tmpl == nil }

var (
	templateNoise = lazyregexp.New(`^template: t:(\d+)(:\d+)?: (executing "t" at )?`)
	ownCall       = lazyregexp.New(`(?s)^<(` + printCall + `|` + refCall + `)\b.*?>: error calling (` + printCall + `|` + refCall + `): `)
)

// plainError drops the names from a template's error that are internal.
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

// Classify returns the error of a text that can't be rendered, marked with what it means for
// the next attempt. A secret that can't be read may be available then; any other error is
// permanent.
func Classify(err error) error {
	if errors.Is(err, secret.ErrUnavailable) {
		return err
	}
	return retry.Permanent(err)
}

// templateError is the readable part of a template's error. It unwraps to the whole, so
// that [secret.ErrUnavailable] is found in it.
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

// printCall is the function that prints every value.
const printCall = "printText"

// stubs are the functions of templates, for parsing; those that depend on the
// data are replaced by [Text.funcs]. urlquery is text/template's own.
var stubs = template.FuncMap{
	"json":    toJSON,
	"b64":     func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"default": orDefault,
	"trim":    strings.TrimSpace,
	"lower":   strings.ToLower,
	"upper":   strings.ToUpper,
	"step":    func(string) (map[string]any, error) { return nil, errors.New("no data") },
	refCall:   func(int) (string, error) { return "", errors.New("no data") },
	printCall: printText,
}

// funcs returns the functions that depend on the data.
func (t *Text) funcs(sc *Scope) template.FuncMap {
	return template.FuncMap{
		"step": func(id string) (any, error) {
			if r, ok := sc.Steps[id]; ok {
				return r, nil
			}
			return nil, fmt.Errorf("step %q is not in needs", id)
		},
		refCall: func(i int) (string, error) {
			s, err := sc.Secrets.Resolve(t.refs[i], sc.Dir)
			return s.Reveal(), err
		},
	}
}

func toJSON(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// orDefault returns the value, or the other when it is empty: default "x" .input.y.
func orDefault(other, v any) any {
	if truth, ok := template.IsTrue(v); !ok || !truth {
		return other
	}
	return v
}

// printText returns a value as it is printed in a text. A value that text/template would
// print as <no value> or in the syntax of Go is an error. The error quotes the action as
// it is written.
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
