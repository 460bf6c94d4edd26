package strictyaml

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
)

// Key is one key of a map with fixed keys. [Object] reads the map by a table of them, and
// [Describe] makes the map's schema from the same table.
type Key struct {
	Name     string
	Doc      string // a sentence for the schema
	Default  string // read as the value if the key is absent; "" means no default
	Required bool
	Inside   []string // if the value is a map: its keys that have environment variables
	Schema   func() *jsonschema.Schema
	Set      func(at Place) // reads the value at the place and stores it
}

// SchemaFunc returns a new schema of a value with each call, so that the caller can
// change it.
type SchemaFunc = func() *jsonschema.Schema

// Field returns a key. When the key is read, the result of read is stored in dst. As in
// package flag, value is the default ("" for none), and doc describes the key.
func Field[V any](dst *V, name, value string, schema SchemaFunc, read func(Place) V, doc string) Key {
	return Func(name, value, schema, func(at Place) { *dst = read(at) }, doc)
}

// Func is [Field] for a value that set reads and stores.
func Func(name, value string, schema SchemaFunc, set func(Place), doc string) Key {
	return Key{Name: name, Doc: doc, Default: value, Schema: schema, Set: set}
}

// Parsed is [Field] for a text that parse converts.
func Parsed[V any](dst *V, name, value string, schema SchemaFunc, parse func(string) (V, error), doc string) Key {
	return Field(dst, name, value, schema, func(at Place) V { return ReadParsed(at, parse) }, doc)
}

// Map returns a key whose value is a map with fixed keys.
func Map(name string, keys []Key, doc string) Key {
	schema := func() *jsonschema.Schema { return Describe(keys) }
	return Func(name, "", schema, func(at Place) { Object(at, keys) }, doc)
}

// Required returns a copy of the key that must be present in the map.
func Required(k Key) Key {
	k.Required = true
	return k
}

// Object reads a map by a table of keys, in the order of the table, and returns the places
// of the keys that are present. ok is false if the value is not a map, or has an unknown,
// a duplicate or a missing key.
func Object(at Place, keys []Key) (found map[string]Place, ok bool) {
	return ObjectBeside(at, keys, func(string) string { return "" })
}

// ObjectBeside is Object for a map beside others. elsewhere returns the path of a key that this
// map does not have and another map has, such as server.data; "" if there is none. The error about
// the key suggests that path.
func ObjectBeside(at Place, keys []Key, elsewhere func(key string) string) (found map[string]Place, ok bool) {
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
		if path := elsewhere(key); path != "" {
			return fmt.Sprintf("key %q is unknown; did you mean %s?", key, path), false
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

// CheckKeys records a problem for each key of the map that is a duplicate or for which
// check returns a message and false. It returns false if there is a problem.
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

// EachName reads a map whose keys are names that the author of the file chooses, and calls
// each for every name. The map may be empty. The argument what names the kind of things
// in messages, such as "workflow".
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

// The functions below whose names begin with Read read a value and record it as the value
// in effect. If the value is invalid, they record a problem and return the zero value.

// NamePattern is the regular expression for the names that a file defines. NameRule is
// the same in words, for messages.
const (
	NamePattern = `^[a-z0-9][a-z0-9_.-]{0,62}$`
	NameRule    = "want 1 to 63 lower-case letters, digits, hyphens, underscores and dots, the first a letter or digit"
)

var nameForm = lazyregexp.New(NamePattern)

// ValidName reports whether the text matches [NamePattern].
func ValidName(text string) bool { return nameForm.MatchString(text) }

// MaxQuoted is the most characters of a value that a message quotes.
const MaxQuoted = 40

// ReadText reads a text.
func ReadText(at Place) string {
	s, _ := at.Text()
	at.Record(s)
	return s
}

// ReadParsed reads a text and converts it by parse. An error of parse is a problem.
func ReadParsed[V any](at Place, parse func(string) (V, error)) V {
	v, _ := parsed(at, parse)
	at.Record(at.Node.Text)
	return v
}

// ReadName reads a name that matches [NamePattern]. The argument what names the kind of
// thing in messages, such as "step".
func ReadName(at Place, what string) string {
	return ReadParsed(at, Matching(nameForm, fmt.Sprintf("is not a valid name for a %s; %s", what, NameRule)))
}

// Matching returns a function that returns a text if the form matches it, and otherwise an error
// that quotes the text and then states the problem.
func Matching(form *lazyregexp.Regexp, problem string) func(text string) (string, error) {
	return func(text string) (string, error) {
		if !form.MatchString(text) {
			return "", fmt.Errorf("%q %s", text, problem)
		}
		return text, nil
	}
}

// Duration returns a key for a duration above zero, in the form that policies use.
func Duration(dst *time.Duration, name, value, doc string) Key {
	return Field(dst, name, value, DurationSchema, ReadDuration, doc)
}

// ReadDuration reads a duration above zero, in the form that policies use.
func ReadDuration(at Place) time.Duration {
	return ReadParsed(at, func(s string) (time.Duration, error) {
		d, err := parseDuration(s)
		if err == nil && d == 0 {
			err = fmt.Errorf("%q: must be above zero", s)
		}
		return d, err
	})
}

// Int returns a key for a whole number that must not be below least.
func Int(dst *int, name, value string, least int, doc string) Key {
	return Field(dst, name, value, IntSchema(least), func(at Place) int { return ReadInt(at, least) }, doc)
}

// ReadInt reads a whole number that must not be below least.
func ReadInt(at Place, least int) int {
	return ReadParsed(at, func(s string) (int, error) {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || int(n) < least {
			return 0, fmt.Errorf("%q is not a whole number of %d or more", s, least)
		}
		return int(n), nil
	})
}

// IntUpTo returns a key for a whole number from 1 to most. The pattern is for the schema:
// it matches such a number in quotes.
func IntUpTo(dst *int, name, value string, most int, pattern, doc string) Key {
	read := func(at Place) int { return ReadIntUpTo(at, 1, most) }
	return Field(dst, name, value, IntUpToSchema(most, pattern), read, doc)
}

// ReadIntUpTo reads a whole number from least to most.
func ReadIntUpTo(at Place, least, most int) int {
	n := ReadInt(at, least)
	if n > most {
		at.Bad("%d is more than %d", n, most)
	}
	return n
}

// sizePattern matches the texts that [textfmt.ParseSize] accepts, except 0 and terabytes.
const sizePattern = `^0*[1-9][0-9]*(KiB|MiB|GiB|kB|KB|MB|GB|B)?$`

var sizeForm = lazyregexp.New(sizePattern)

// Size returns a key for a number of bytes above zero: 500, 64KiB, 10MB.
func Size(dst *int64, name, value, doc string) Key {
	return Field(dst, name, value, SizeSchema, ReadSize, doc)
}

// ReadSize reads a number of bytes above zero: 500, 64KiB, 10MB.
func ReadSize(at Place) int64 {
	return ReadParsed(at, func(s string) (int64, error) {
		n, ok := textfmt.ParseSize(s)
		if !ok || !sizeForm.MatchString(s) {
			return 0, fmt.Errorf("%q is not a size such as 500kB, 64KiB or 1MiB", s)
		}
		return n, nil
	})
}

// Word returns a key for a value that must be one of the words.
func Word(dst *string, name, value string, words []string, doc string) Key {
	return Field(dst, name, value, WordSchema(words...), func(at Place) string { return ReadWord(at, words...) }, doc)
}

// ReadWord reads a value that must be one of the words.
func ReadWord(at Place, words ...string) string {
	return ReadParsed(at, func(s string) (string, error) {
		if !slices.Contains(words, s) {
			return "", fmt.Errorf("%q is not one of %s", s, strings.Join(words, ", "))
		}
		return s, nil
	})
}

// Bool returns a key for true or false.
func Bool(dst *bool, name, doc string) Key {
	return Field(dst, name, "", BoolSchema, ReadBool, doc)
}

// ReadBool reads true or false.
func ReadBool(at Place) bool {
	truth, _ := at.Truth()
	at.Record(at.Node.Text)
	return truth
}
