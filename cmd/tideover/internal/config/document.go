package config

import (
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/tideover/tideover/retry"
)

// Document is a YAML file that is not the configuration, read as strictly: every
// problem is kept with its place, to be told together at the end.
type Document struct {
	Root Place // without a value if the file is empty, or can't be read
	l    *loader
}

// NewDocument reads the one document of a file. name is what messages call it.
// What makes the file unreadable is a problem as any other, and is in
// [Document.Err].
func NewDocument(name string, data []byte) *Document {
	d := &Document{l: &loader{name: name, lines: splitLines(data), cfg: &Config{}}}
	root, err := parseYAML(data)
	if err != nil {
		d.l.problem(err)
	}
	if root == nil {
		root = &node{}
	}
	d.Root = Place{place{"", root}, d.l}
	return d
}

// Err returns all problems in the order of their lines, as [FieldErrors], or nil.
func (d *Document) Err() error { return d.l.result() }

// Place is a value in a [Document] and the way to it.
type Place struct {
	at place
	l  *loader
}

// Path returns the way to the place, such as services[0].latency.mean.
func (p Place) Path() string { return p.at.path }

// Empty reports whether there is no value.
func (p Place) Empty() bool { return p.at.node.kind == nullKind }

// Missing is a value that could be below the place, and is not: a problem with it
// is shown where the place is.
func (p Place) Missing(path string) Place { return Place{place{path, p.at.node}, p.l} }

// Bad records a problem.
func (p Place) Bad(format string, args ...any) { p.l.bad(p.at, format, args...) }

// IsMap reports whether the value is a map.
func (p Place) IsMap() bool { return p.at.node.kind == mapKind }

// IsList reports whether the value is a list.
func (p Place) IsList() bool { return p.at.node.kind == listKind }

// Items returns the values of a list. Anything else is a problem.
func (p Place) Items() (items []Place, ok bool) {
	ok = p.l.list(p.at, func(at place) { items = append(items, Place{at, p.l}) })
	return items, ok
}

// Keys yields the keys of a map, in the order of the file, with their values. It is
// a problem if the value is no map, if a key is there twice, and if it is not
// among those that are known; nil means that all are.
func (p Place) Keys(known []string) iter.Seq2[string, Place] {
	return func(yield func(string, Place) bool) {
		if !p.IsMap() {
			p.Bad("%v, where a map is expected", p.at.node.kind)
			return
		}
		names := map[string]bool{}
		for _, name := range known {
			names[name] = true
		}
		p.l.checkKeys(p.at, func(e pair) (string, bool) {
			return unknown(e.key.text, known), known == nil || names[e.key.text]
		})
		for _, e := range p.at.node.pairs {
			if p.at.node.get(e.key.text) != e.val || known != nil && !names[e.key.text] {
				continue // it has been refused
			}
			if !yield(e.key.text, Place{p.at.child(e.key.text, e.val), p.l}) {
				return
			}
		}
	}
}

// Text returns a text, or a number or a truth value as it is written. Anything else
// is a problem.
func (p Place) Text() (string, bool) { return p.l.scalar(p.at) }

// Duration returns a duration in the spelling of policies, 0 included. Anything
// else is a problem.
func (p Place) Duration() (time.Duration, bool) {
	s, ok := p.Text()
	if !ok {
		return 0, false
	}
	d, err := retry.ParseDuration(s)
	if _, number := strconv.ParseFloat(s, 64); err != nil && number == nil {
		err = fmt.Errorf("%q has no unit; write %ss for seconds", s, s)
	}
	if err != nil {
		p.Bad("%v", err)
	}
	return d, err == nil
}

// Number returns a number. Anything else is a problem.
func (p Place) Number() (float64, bool) {
	s, ok := p.Text()
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		p.Bad("%q is not a number", s)
	}
	return f, err == nil
}

// Whole returns a whole number. Anything else is a problem.
func (p Place) Whole() (int, bool) {
	s, ok := p.Text()
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		p.Bad("%q is not a whole number between -2147483648 and 2147483647", s)
	}
	return int(n), err == nil
}

// Truth returns true or false. Anything else is a problem.
func (p Place) Truth() (truth, ok bool) {
	if truth, ok = p.at.node.value.(bool); !ok {
		p.Bad("%v, where true or false is expected", p.at.node.kind)
	}
	return truth, ok
}
