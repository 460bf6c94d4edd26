// Package strictyaml reads YAML files strictly: an unknown key, a key that is given twice
// or a value of the wrong kind is a problem, and all problems of a file are reported
// together, each with its line, its column and an excerpt of the line.
//
// A [Document] is one file. A [Place] is a value in it and the path to it; its methods
// read the value and record problems. A map with fixed keys is read by a table of [Key],
// from which [Describe] also makes the JSON Schema of the map.
//
// Excerpts and messages hide what may be a secret.
package strictyaml

import (
	"fmt"
	"slices"
	"strings"
)

// Document is a file while it is read.
type Document struct {
	Root Place // without a value if the file is empty, or can't be read

	name     string // in messages
	lines    []string
	problems []*FieldError
	warnings []*FieldError
	values   []Value
	literals []string    // secrets that stand in the file itself
	hidden   map[int]int // by line: the column from which on the line is not quoted
}

// NewDocument parses a file that has one YAML document. Messages call it name. A
// syntax error is a problem as any other, and is in [Document.Err].
func NewDocument(name string, data []byte) *Document {
	d := &Document{name: name, lines: splitLines(data), hidden: map[int]int{}}
	root, err := parse(data)
	if err != nil {
		d.addSyntaxError(err)
	}
	if root == nil {
		root = &Node{}
	}
	d.Root = d.Place("", root)
	return d
}

// Place returns a place of the document that is reached by the path.
func (d *Document) Place(path string, n *Node) Place { return Place{Node: n, path: path, doc: d} }

// Err returns all problems in the order of their lines, as [FieldErrors], or nil.
func (d *Document) Err() error {
	if len(d.problems) == 0 {
		return nil
	}
	return FieldErrors(d.sorted(d.problems))
}

// Problems returns the number of problems so far.
func (d *Document) Problems() int { return len(d.problems) }

// HasProblem reports whether there is a problem at the path, or inside of it.
func (d *Document) HasProblem(path string) bool {
	return slices.ContainsFunc(d.problems, func(p *FieldError) bool {
		rest, ok := strings.CutPrefix(p.Path, path)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// ForgetProblems drops all problems so far.
func (d *Document) ForgetProblems() { d.problems = nil }

// AddProblem records a problem of the file as a whole.
func (d *Document) AddProblem(format string, args ...any) {
	d.problems = append(d.problems, &FieldError{Message: fmt.Sprintf(format, args...)})
}

// Warnings returns what [Place.Warn] has recorded, in the order of the lines.
func (d *Document) Warnings() []*FieldError { return d.sorted(d.warnings) }

// Value is one setting and where it comes from.
type Value struct {
	Path   string // such as server.listen
	Text   string // as it is written; a secret is its reference, a policy is written out
	Origin string // "default", "env TIDEOVER_SERVER_LISTEN", "tideover.yaml:12", "flag --listen"
}

// Values returns what [Place.Record] has recorded, in that order.
func (d *Document) Values() []Value { return d.values }

// addValue records a setting. A secret of a known form is masked, such as one in a
// description.
func (d *Document) addValue(path string, n *Node, text string) {
	origin := n.Origin
	if origin == "" {
		origin = fmt.Sprintf("%s:%d", d.name, n.Line)
	}
	d.values = append(d.values, Value{path, MaskKnown(text), origin})
}

// hide keeps the line of a node from its column on out of excerpts.
func (d *Document) hide(n *Node) {
	if n.Origin != "" || n.Line < 1 || n.Line > len(d.lines) {
		return
	}
	if column, ok := d.hidden[n.Line]; !ok || n.Column < column {
		d.hidden[n.Line] = max(n.Column, 1)
	}
}

// hideLiterals keeps texts out of messages and excerpts.
func (d *Document) hideLiterals(texts ...string) {
	if len(d.problems) < maxProblems {
		d.literals = append(d.literals, texts...)
	}
}
