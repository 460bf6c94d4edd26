// Package strictyaml reads YAML files strictly: an unknown key, a key that is given twice
// or a value of the wrong kind is a problem, and all problems of a file are reported
// together, each with its line, its column and an excerpt of the line.
//
// A [Document] is one file. A [Place] is a value in it and the path to it; its methods
// read the value and record problems. A map with fixed keys is read by a table of [Key],
// from which [Describe] also makes the JSON Schema of the map.
//
// Excerpts and messages mask values that may be a secret.
package strictyaml

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// Document is a file while it is read.
type Document struct {
	Root Place // has no value if the file is empty or not valid YAML

	name     string // name of the file in messages
	lines    []string
	problems []*FieldError
	warnings []*FieldError
	values   []Value
	literals []string    // secrets that are written out in the file; messages mask them
	hidden   map[int]int // by line number: the first column that excerpts mask
}

// NewDocument parses a file that has one YAML document. name is the name of the file in
// messages. A syntax error is returned by [Document.Err], like any other problem.
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

// Place returns the place of the node n, with the path to it.
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

// HasProblem reports whether the value at the path, or a value inside of it, has a
// problem.
func (d *Document) HasProblem(path string) bool {
	return slices.ContainsFunc(d.problems, func(p *FieldError) bool {
		rest, ok := strings.CutPrefix(p.Path, path)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// ForgetProblems drops all problems that were recorded so far.
func (d *Document) ForgetProblems() { d.problems = nil }

// AddProblem records a problem of the file as a whole.
func (d *Document) AddProblem(format string, args ...any) {
	d.problems = append(d.problems, &FieldError{Message: fmt.Sprintf(format, args...)})
}

// Warnings returns the warnings that [Place.Warn] has recorded, in the order of the lines.
func (d *Document) Warnings() []*FieldError { return d.sorted(d.warnings) }

// Value is one setting and where it comes from.
type Value struct {
	Path   string // such as server.listen
	Text   string // as in the file; a secret is its reference, and a policy is in its full text form
	Origin string // "default", "env TIDEOVER_SERVER_LISTEN", "tideover.yaml:12", "flag --listen"
}

// Values returns the settings that [Place.Record] has recorded, in the order of the calls.
func (d *Document) Values() []Value { return d.values }

// addValue records a setting. It masks secrets of a known form, which may be in any text,
// such as a description.
func (d *Document) addValue(path string, n *Node, text string) {
	origin := n.Origin
	if origin == "" {
		origin = fmt.Sprintf("%s:%d", d.name, n.Line)
	}
	d.values = append(d.values, Value{path, MaskKnown(text), origin})
}

// hide makes excerpts mask the line of a node, from the node's column on.
func (d *Document) hide(n *Node) {
	if n.Origin != "" || n.Line < 1 || n.Line > len(d.lines) {
		return
	}
	if column, ok := d.hidden[n.Line]; !ok || n.Column < column {
		d.hidden[n.Line] = max(n.Column, 1)
	}
}

// hideLiterals makes messages and excerpts mask the texts.
func (d *Document) hideLiterals(texts ...string) {
	if len(d.problems) < maxProblems {
		d.literals = append(d.literals, texts...)
	}
}

// Place is a value in a [Document] and the path to it. The zero Place has no Node; it
// stands for a key that is absent.
type Place struct {
	Node *Node

	path string
	doc  *Document
}

// Path returns the path to the place, such as workflows.nightly.steps[0].policy.
func (p Place) Path() string { return p.path }

// Document returns the document of the place.
func (p Place) Document() *Document { return p.doc }

// Child returns the place of n, the value of the key name of the map at this place.
func (p Place) Child(name string, n *Node) Place {
	if p.path != "" {
		name = p.path + "." + name
	}
	return p.doc.Place(name, n)
}

// Index returns the place of item i of the list at this place.
func (p Place) Index(i int) Place {
	return p.doc.Place(fmt.Sprintf("%s[%d]", p.path, i), p.Node.Items[i])
}

// WithNode returns a place with the same path for another node, such as a key of the
// map that is at the place.
func (p Place) WithNode(n *Node) Place { return p.doc.Place(p.path, n) }

// Missing returns a place for an absent value with the path. Its problems are shown at
// the line of this place.
func (p Place) Missing(path string) Place { return p.doc.Place(path, p.Node) }

// Empty reports whether there is no value.
func (p Place) Empty() bool { return p.Node.Kind == KindNull }

// IsMap reports whether the value is a map.
func (p Place) IsMap() bool { return p.Node.Kind == KindMap }

// IsList reports whether the value is a list.
func (p Place) IsList() bool { return p.Node.Kind == KindList }

// Bad records a problem with the value at this place.
func (p Place) Bad(format string, args ...any) {
	if len(p.doc.problems) < maxProblems {
		p.doc.problems = append(p.doc.problems, newFieldError(p, format, args...))
	}
}

// Warn records a warning about a value that is valid but probably a mistake.
func (p Place) Warn(format string, args ...any) {
	p.doc.warnings = append(p.doc.warnings, newFieldError(p, format, args...))
}

func newFieldError(p Place, format string, args ...any) *FieldError {
	e := &FieldError{Path: p.path, Message: fmt.Sprintf(format, args...)}
	if n := p.Node; n != nil && n.Origin != "" {
		e.Origin = n.Origin
	} else if n != nil {
		e.Line, e.Column = n.Line, n.Column
	}
	return e
}

// Refuse records the message as a problem with a secret that is written out in the file.
// literal is the secret. Messages and excerpts mask it, and also the whole value.
func (p Place) Refuse(literal, message string) {
	p.doc.hideLiterals(literal, p.Node.Text)
	p.Bad("%s", message)
}

// Hide makes messages mask the value. Excerpts mask its whole line from the value on,
// because the file may have the value in another form, such as with escapes.
func (p Place) Hide() {
	p.doc.literals = append(p.doc.literals, p.Node.Text)
	p.doc.hide(p.Node)
}

// Record records the value in effect; see [Document.Values].
func (p Place) Record(text string) { p.doc.addValue(p.path, p.Node, text) }

// RecordDefault records the value of a key that is absent from the map at the place.
func (p Place) RecordDefault(name, text string) { p.Child(name, NewText("", "default")).Record(text) }

// Each calls the function for each item of a list. If the value is not a list, it records
// a problem and returns false.
func (p Place) Each(each func(at Place)) bool {
	if !p.IsList() {
		p.Bad("%v, where a list is expected", p.Node.Kind)
		return false
	}
	for i := range p.Node.Items {
		each(p.Index(i))
	}
	return true
}

// Items returns the places of the items of a list. If the value is not a list, it records
// a problem, and ok is false.
func (p Place) Items() (items []Place, ok bool) {
	ok = p.Each(func(at Place) { items = append(items, at) })
	return items, ok
}

// Keys yields the keys of a map, in the order of the file, with the places of their
// values. It records a problem for a value that is not a map, for a duplicate key and for
// a key that is not in known. A nil known allows all keys.
func (p Place) Keys(known []string) iter.Seq2[string, Place] {
	return func(yield func(string, Place) bool) {
		if !p.IsMap() {
			p.Bad("%v, where a map is expected", p.Node.Kind)
			return
		}
		names := map[string]bool{}
		for _, name := range known {
			names[name] = true
		}
		p.CheckKeys(func(key string) (string, bool) {
			return UnknownKey(key, known), known == nil || names[key]
		})
		for _, e := range p.Node.Pairs {
			if p.Node.Get(e.Key.Text) != e.Val || known != nil && !names[e.Key.Text] {
				continue // CheckKeys has recorded a problem
			}
			if !yield(e.Key.Text, p.Child(e.Key.Text, e.Val)) {
				return
			}
		}
	}
}

// Text returns the value as a text. A number or a boolean is returned as the file has it.
// For any other value it records a problem and returns false.
func (p Place) Text() (string, bool) {
	switch {
	case p.Node.IsScalar():
		return p.Node.Text, true
	case p.Node.Kind == KindNull:
		p.Bad(`the value is missing; write "" for an empty text`)
	default:
		p.Bad("%v, where a text is expected", p.Node.Kind)
	}
	return "", false
}

// parsed returns the result of parse for the text at the place. If the value is not a
// text, or parse returns an error, it records a problem, and ok is false.
func parsed[V any](p Place, parse func(string) (V, error)) (v V, ok bool) {
	s, ok := p.Text()
	if !ok {
		return v, false
	}
	got, err := parse(s)
	if err != nil {
		p.Bad("%v", err)
		return v, false
	}
	return got, true
}

// Duration returns a duration in the form that policies use, such as 90s or 1d; it may be
// 0. For any other value it records a problem and returns false.
func (p Place) Duration() (time.Duration, bool) { return parsed(p, parseDuration) }

func parseDuration(s string) (time.Duration, error) {
	d, err := retry.ParseDuration(s)
	if _, number := strconv.ParseFloat(s, 64); err != nil && number == nil {
		err = fmt.Errorf("%q has no unit; write %ss for seconds", s, s)
	}
	return d, err
}

// Number returns a number. For any other value it records a problem and returns false.
func (p Place) Number() (float64, bool) {
	return parsed(p, func(s string) (float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			err = fmt.Errorf("%q is not a number", s)
		}
		return f, err
	})
}

// Whole returns a whole number. For any other value it records a problem and returns
// false.
func (p Place) Whole() (int, bool) {
	return parsed(p, func(s string) (int, error) {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			err = fmt.Errorf("%q is not a whole number between -2147483648 and 2147483647", s)
		}
		return int(n), err
	})
}

// Truth returns a boolean. For any other value it records a problem, and ok is false.
func (p Place) Truth() (truth, ok bool) {
	if truth, ok = p.Node.Value.(bool); !ok {
		p.Bad("%v, where true or false is expected", p.Node.Kind)
	}
	return truth, ok
}
