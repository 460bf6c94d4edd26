package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
)

// maxRendered bounds what one template makes.
const maxRendered = 16 << 20

// text is a text of the file with templates and references in it, which are
// written out when a step runs. It never changes.
type text struct {
	src  string
	tmpl *template.Template // nil when there is nothing to write out
	lit  string             // what src means then
	refs []secret.Ref
	uses []string // steps whose results it asks for

	// foreign says that whoever starts a run may have written a part of what it
	// makes.
	foreign bool
}

// refMode says whether a text may have references.
type refMode uint8

const (
	// withRefs is for what goes to others in the clear and stays out of stored
	// runs: env values, headers, URLs. There every "${" must be a reference;
	// "$${" stands for itself.
	withRefs refMode = iota
	// withoutRefs is for arguments, which everybody on the machine can read, and
	// for bodies and inputs. There "${" is not special, because scripts are full
	// of it, but a reference is refused.
	withoutRefs
)

// refCall is the function that a reference becomes. Secrets are inserted by a
// function so that what they contain is never read as a template, and what a
// template makes is never read as a reference.
const refCall = "secretRef"

// parseText reads a text whose templates may use the given fields.
func parseText(src string, mode refMode, fields roots) (*text, error) {
	t := &text{src: src}
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
func (t *text) extractRefs(mode refMode) (string, error) {
	var b strings.Builder
	for s := t.src; s != ""; {
		switch {
		case strings.HasPrefix(s, "{{"):
			n := actionLen(s)
			if strings.Contains(s[:n], "${env:") || strings.Contains(s[:n], "${file:") {
				return "", fmt.Errorf("a reference can't stand inside {{ }}: %q", textfmt.Clip(s[:n], strictyaml.MaxQuoted))
			}
			b.WriteString(s[:n])
			s = s[n:]
		case strings.HasPrefix(s, "$${") && (mode == withRefs || isRef(s[1:])):
			b.WriteString("${")
			s = s[3:]
		case isRef(s), mode == withRefs && strings.HasPrefix(s, "${"):
			word, rest, closed := strings.Cut(s, "}")
			if !closed {
				return "", fmt.Errorf("%q has no closing brace; write $${ for a literal ${", textfmt.Clip(s, strictyaml.MaxQuoted))
			}
			ref, err := secret.ParseRef(word + "}")
			switch {
			case err != nil:
				return "", fmt.Errorf("%w; write $${ for a literal ${", err)
			case mode == withoutRefs:
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

func isRef(s string) bool {
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

// render writes the text out.
func (t *text) render(sc *scope) (string, error) {
	if t == nil || t.tmpl == nil {
		return t.literal(), nil
	}
	tmpl, err := t.tmpl.Clone()
	if err != nil {
		return "", err
	}
	var b limited
	err = tmpl.Funcs(t.funcs(sc)).Execute(&b, sc.root)
	if err != nil {
		return "", plainError(err)
	}
	return b.String(), nil
}

func (t *text) literal() string {
	if t == nil {
		return ""
	}
	return t.lit
}

// constant reports whether the text is the same whatever the data.
func (t *text) constant() bool { return t.tmpl == nil }

var (
	templateNoise = lazyregexp.New(`^template: t:(\d+)(:\d+)?: (executing "t" at )?`)
	ownCall       = lazyregexp.New(`(?s)^<(` + printCall + `|` + refCall + `)\b.*?>: error calling (` + printCall + `|` + refCall + `): `)
)

// plainError drops what a template's error says about names that are ours.
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

// templateError is what is left of a template's error. It unwraps to the whole,
// so that a secret that is not available at the moment is known as such.
type templateError struct {
	msg string
	err error
}

func (e *templateError) Error() string { return e.msg }
func (e *templateError) Unwrap() error { return e.err }

var errTooLong = fmt.Errorf("template: the text is longer than %d bytes", maxRendered)

// limited is a buffer that refuses to grow beyond what is sane.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxRendered {
		return 0, errTooLong
	}
	return l.Buffer.Write(p)
}
