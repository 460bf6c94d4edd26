package config

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
	printedProblems = 50   // as many does an error print
	maxProblems     = 1000 // as many are kept
)

// FieldError is one thing that is wrong with the configuration.
type FieldError struct {
	File    string // the file's name as it was given; empty for what is not in the file
	Line    int    // 0 when the problem is about no line
	Column  int    // in characters, from 1
	Origin  string // such as "env TIDEOVER_SERVER_LISTEN", for what is not in the file
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

// FieldErrors is the error of [Load]: everything that is wrong, in the order of
// the lines.
type FieldErrors []*FieldError

// Error returns all problems, one after the other.
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

// Brief returns the first problem of an error of [Load], or of any other, in one
// line, and how many more there are: for a log.
func Brief(err error) (first string, more int) {
	if ps, ok := errors.AsType[FieldErrors](err); ok && len(ps) > 0 {
		p := *ps[0]
		p.Excerpt = ""
		return oneline.Text(p.Error()), len(ps) - 1
	}
	list := joined(err)
	if len(list) == 0 {
		return "", 0
	}
	return oneline.Text(list[0].Error()), len(list) - 1
}

// bad records a problem at a place.
func (l *loader) bad(at place, format string, args ...any) {
	if len(l.problems) == maxProblems {
		return
	}
	p := &FieldError{Path: at.path, Message: fmt.Sprintf(format, args...)}
	if n := at.node; n != nil && n.origin != "" {
		p.Origin = n.origin
	} else if n != nil {
		p.Line, p.Column = n.line, n.col
	}
	l.problems = append(l.problems, p)
}

// problem records an error that has its own position, or none.
func (l *loader) problem(err error) {
	p := &FieldError{Message: err.Error()}
	if e, ok := errors.AsType[*syntaxError](err); ok {
		p.Line, p.Column = e.line, e.col
	}
	l.problems = append(l.problems, p)
}

// result returns all problems in order, without repetitions, which aliases make.
func (l *loader) result() error {
	if len(l.problems) == 0 {
		return nil
	}
	return FieldErrors(l.sorted(l.problems))
}

// sorted returns problems in order, without repetitions, with the lines of the file.
func (l *loader) sorted(problems []*FieldError) []*FieldError {
	slices.SortStableFunc(problems, func(a, b *FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	list := slices.CompactFunc(problems, func(a, b *FieldError) bool { return *a == *b })
	var literals secret.Redactor
	literals.Add(l.literals...)
	for line, col := range l.hidden {
		if runes := []rune(l.lines[line-1]); col <= len(runes) {
			l.lines[line-1] = string(runes[:col-1]) + secret.Mask
		}
	}
	for i, p := range list {
		if p.Origin == "" {
			p.File = l.name
		}
		// Literal secrets have been refused, and are not to be repeated to whoever
		// reads the refusal.
		p.Message = literals.String(maskText(p.Message))
		if i < printedProblems {
			p.Excerpt = literals.String(excerpt(l.lines, p.Line, p.Column))
		}
	}
	return list
}
