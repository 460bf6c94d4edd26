package config

import (
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// key is one key of a map that has fixed ones. A table of them is what the
// loader reads the map by and what the schema is made of.
type key[T any] struct {
	name     string
	doc      string // a sentence for the schema
	def      string // what is used when the key is absent; empty means nothing
	required bool
	inside   []string // keys of the map that it is, which have variables of their own
	schema   func() *jsonschema.Schema
	set      func(l *loader, at place, dst *T)
}

// object reads a map by its table, in the table's order, and returns the place of
// each key that is there. The nodes of absent keys are nil.
func object[T any](l *loader, at place, keys []key[T], dst *T) (found map[string]place, ok bool) {
	found = map[string]place{}
	if at.node.kind != mapKind {
		l.bad(at, "%v, where a map is expected", at.node.kind)
		return found, false
	}
	ok = l.checkKeys(at, func(p pair) (string, bool) { return known(p.key.text, keys) })
	for _, k := range keys {
		n := at.node.get(k.name)
		switch {
		case n != nil:
			found[k.name] = at.child(k.name, n)
			k.set(l, found[k.name], dst)
		case k.required:
			l.bad(at, "%q is missing", k.name)
			ok = false
		case k.def != "":
			k.set(l, at.child(k.name, given(k.def, "default")), dst)
		}
	}
	return found, ok
}

// known says what is wrong with a key, if anything is.
func known[T any](name string, keys []key[T]) (msg string, ok bool) {
	var names []string
	for _, k := range keys {
		if k.name == name {
			return "", true
		}
		names = append(names, k.name)
	}
	return unknown(name, names), false
}

// checkKeys refuses keys that are given twice and those that check refuses.
func (l *loader) checkKeys(at place, check func(pair) (string, bool)) bool {
	ok := true
	first := map[string]*node{}
	for _, p := range at.node.pairs {
		here := at.child(p.key.text, p.key)
		if before := first[p.key.text]; before != nil {
			l.bad(here, "key %q is given already, at line %d", p.key.text, before.line)
			ok = false
			continue
		}
		first[p.key.text] = p.key
		if msg, fine := check(p); !fine {
			l.bad(place{at.path, p.key}, "%s", msg)
			ok = false
		}
	}
	return ok
}

// named reads a map whose keys are names that the file's author chooses.
func (l *loader) named(at place, what string, each func(name string, at place)) {
	if at.node.kind == nullKind {
		return // an empty section
	}
	if at.node.kind != mapKind {
		l.bad(at, "%v, where a map of names is expected", at.node.kind)
		return
	}
	l.checkKeys(at, func(p pair) (string, bool) {
		return fmt.Sprintf("%q is not a name for a %s; %s", p.key.text, what, nameRule), validName.MatchString(p.key.text)
	})
	seen := map[string]bool{}
	for _, p := range at.node.pairs {
		if !seen[p.key.text] {
			seen[p.key.text] = true
			each(p.key.text, at.child(p.key.text, p.val))
		}
	}
}

// describe returns the schema of a map that is read by the table.
func describe[T any](keys []key[T]) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}, AdditionalProperties: nothing()}
	for _, k := range keys {
		p := k.schema()
		p.Description = k.doc
		if k.def != "" {
			p.Default = literal(p, k.def)
		}
		s.Properties[k.name] = p
		s.PropertyOrder = append(s.PropertyOrder, k.name)
		if k.required {
			s.Required = append(s.Required, k.name)
		}
	}
	slices.Sort(s.Required)
	return s
}
