package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/secret"
)

const (
	printedProblems = 50   // most problems that FieldErrors.Error prints
	maxProblems     = 1000 // most problems that a document keeps
)

// FieldError is one problem of a file.
type FieldError struct {
	File    string // the file's name as it was given; empty if the value is not in the file
	Line    int    // 0 if the problem has no line
	Column  int    // in characters, from 1
	Origin  string // for a value that is not in the file, such as "env TIDEOVER_SERVER_LISTEN"
	Path    string // such as workflows.nightly.steps[0].policy; empty for the file as a whole
	Message string
	Excerpt string // the line and a caret; may be empty
}

// Error returns the problem as file:line:column: path: message, and the excerpt
// on lines of its own.
func (p *FieldError) Error() string {
	var b strings.Builder
	switch {
	case p.Origin != "":
		fmt.Fprintf(&b, "%s: ", p.Origin)
	case p.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	case p.File != "":
		fmt.Fprintf(&b, "%s: ", p.File)
	}
	if p.Path != "" {
		fmt.Fprintf(&b, "%s: ", p.Path)
	}
	b.WriteString(p.Message)
	if p.Excerpt != "" {
		b.WriteString("\n" + p.Excerpt)
	}
	return b.String()
}

// FieldErrors is the error of [Document.Err]: all problems, in the order of the lines.
type FieldErrors []*FieldError

// Error returns the first 50 problems, one after the other, and the number of the others.
func (ps FieldErrors) Error() string {
	var lines []string
	for i, p := range ps {
		if i == printedProblems {
			lines = append(lines, fmt.Sprintf("and %d more", len(ps)-i))
			break
		}
		lines = append(lines, p.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems as errors.
func (ps FieldErrors) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// Brief returns the first problem of [FieldErrors], or the first of joined errors, on one
// line for a log, and the number of the others.
func Brief(err error) (first string, more int) {
	if ps, ok := errors.AsType[FieldErrors](err); ok && len(ps) > 0 {
		p := *ps[0]
		p.Excerpt = ""
		return oneline.Text(p.Error()), len(ps) - 1
	}
	list := JoinedErrors(err)
	if len(list) == 0 {
		return "", 0
	}
	return oneline.Text(list[0].Error()), len(list) - 1
}

// addSyntaxError records an error of the parser as a problem. Only a [syntaxError] has a
// position.
func (d *Document) addSyntaxError(err error) {
	p := &FieldError{Message: err.Error()}
	if e, ok := errors.AsType[*syntaxError](err); ok {
		p.Line, p.Column = e.line, e.col
	}
	d.problems = append(d.problems, p)
}

// sorted returns the problems in the order of their lines, with excerpts and with secrets
// masked. It drops duplicates: a value with several aliases is read several times.
func (d *Document) sorted(problems []*FieldError) []*FieldError {
	slices.SortStableFunc(problems, func(a, b *FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	list := slices.CompactFunc(problems, func(a, b *FieldError) bool { return *a == *b })
	var literals secret.Redactor
	literals.Add(d.literals...)
	for line, col := range d.hidden {
		if runes := []rune(d.lines[line-1]); col <= len(runes) {
			d.lines[line-1] = string(runes[:col-1]) + secret.Mask
		}
	}
	for i, p := range list {
		if p.Origin == "" {
			p.File = d.name
		}
		// A message may quote a secret that is written out in the file: mask it.
		p.Message = literals.String(maskText(p.Message))
		if i < printedProblems {
			p.Excerpt = literals.String(excerpt(d.lines, p.Line, p.Column))
		}
	}
	return list
}

// JoinedErrors returns the errors that [errors.Join] has joined in err, or err alone. It
// returns nil for nil.
func JoinedErrors(err error) []error {
	if err == nil {
		return nil
	}
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return list.Unwrap()
	}
	return []error{err}
}
