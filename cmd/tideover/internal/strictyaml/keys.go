package strictyaml

import (
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// Key is one key of a map with fixed keys. [Object] reads the map by a table of them, and
// [Describe] makes the map's schema from the same table.
type Key struct {
	Name     string
	Doc      string // a sentence for the schema
	Default  string // used when the key is absent; empty means none
	Required bool
	Inside   []string // keys of the map that is its value, which have variables of their own
	Schema   func() *jsonschema.Schema
	Set      func(at Place)
}

// Field returns a key whose value read stores in dst. As in package flag, the name is
// followed by the default, and a sentence about the key comes last.
func Field[V any](dst *V, name, value string, schema func() *jsonschema.Schema, read func(Place) V, doc string) Key {
	return Func(name, value, schema, func(at Place) { *dst = read(at) }, doc)
}

// Func is [Field] for a value that set stores itself.
func Func(name, value string, schema func() *jsonschema.Schema, set func(Place), doc string) Key {
	return Key{Name: name, Doc: doc, Default: value, Schema: schema, Set: set}
}

// Parsed is [Field] for a text that parse reads.
func Parsed[V any](dst *V, name, value string, schema func() *jsonschema.Schema, parse func(string) (V, error), doc string) Key {
	return Field(dst, name, value, schema, func(at Place) V { return ReadParsed(at, parse) }, doc)
}

// Map is a key whose value is a map with fixed keys.
func Map(name string, keys []Key, doc string) Key {
	schema := func() *jsonschema.Schema { return Describe(keys) }
	return Func(name, "", schema, func(at Place) { Object(at, keys) }, doc)
}

// Required returns the key as one that must be present.
func Required(k Key) Key {
	k.Required = true
	return k
}

// Object reads a map by its table, in the table's order, and returns the place of
// each key that is present.
func Object(at Place, keys []Key) (found map[string]Place, ok bool) {
	found = map[string]Place{}
	if !at.IsMap() {
		at.Bad("%v, where a map is expected", at.Node.Kind)
		return found, false
	}
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Name
	}
	ok = at.CheckKeys(func(key string) (string, bool) {
		if slices.Contains(names, key) {
			return "", true
		}
		return UnknownKey(key, names), false
	})
	for _, k := range keys {
		n := at.Node.Get(k.Name)
		switch {
		case n != nil:
			found[k.Name] = at.Child(k.Name, n)
			k.Set(found[k.Name])
		case k.Required:
			at.Bad("%q is missing", k.Name)
			ok = false
		case k.Default != "":
			k.Set(at.Child(k.Name, NewText(k.Default, "default")))
		}
	}
	return found, ok
}

// CheckKeys records a problem for each key of the map that is given twice or that check
// refuses with a message.
func (p Place) CheckKeys(check func(key string) (message string, ok bool)) bool {
	ok := true
	first := map[string]*Node{}
	for _, e := range p.Node.Pairs {
		key := e.Key.Text
		if before := first[key]; before != nil {
			p.Child(key, e.Key).Bad("key %q is already set at line %d", key, before.Line)
			ok = false
			continue
		}
		first[key] = e.Key
		if message, fine := check(key); !fine {
			p.WithNode(e.Key).Bad("%s", message)
			ok = false
		}
	}
	return ok
}

// EachName reads a map whose keys are names that the author of the file chooses. It may
// be empty. A message calls the thing that has the name what.
func (p Place) EachName(what string, each func(name string, at Place)) {
	if p.Empty() {
		return
	}
	if !p.IsMap() {
		p.Bad("%v, where a map of names is expected", p.Node.Kind)
		return
	}
	p.CheckKeys(func(key string) (string, bool) {
		return fmt.Sprintf("%q is not a valid name for a %s; %s", key, what, NameRule), ValidName(key)
	})
	seen := map[string]bool{}
	for _, e := range p.Node.Pairs {
		if name := e.Key.Text; !seen[name] {
			seen[name] = true
			each(name, p.Child(name, e.Val))
		}
	}
}
