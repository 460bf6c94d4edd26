package config

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// Inherit is which variables of the server's environment a command gets, in addition to those that every
// command gets ([BaseVariables]): names, which may end in * for all that begin so. "*" stands for all of them.
type Inherit []string

// InheritAll is `env-inherit: all`.
var InheritAll = Inherit{"*"}

// BaseVariables are the variables of the server's environment that every command gets, unless they are
// settings of the server itself.
var BaseVariables = Inherit{"PATH", "HOME", "USER", "LANG", "LC_*", "TZ", "TMPDIR", "TIDEOVER_*"}

// Has reports whether the variable is among them.
func (i Inherit) Has(name string) bool {
	return slices.ContainsFunc(i, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return name == pattern || open && strings.HasPrefix(name, prefix)
	})
}

// plus returns what either has, each once.
func (i Inherit) plus(more Inherit) Inherit {
	all := slices.Clone(i)
	for _, name := range more {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// MarshalJSON writes the list, which is never null: steps of earlier releases have none.
func (i Inherit) MarshalJSON() ([]byte, error) {
	if i == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]string(i))
}

const inheritPattern = `^[A-Za-z_][A-Za-z0-9_]*\*?$`

var inheritName = lazyregexp.New(inheritPattern)

const inheritDoc = "Variables of the server's environment that the command gets: a list of names, such as SSH_AUTH_SOCK or AWS_*, or all. "

func inheritSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		strictyaml.WordSchema("all"), {Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: inheritPattern}, UniqueItems: true},
	}}
}

// readInherit reads a list of names, or all. A variable or a flag has names with commas.
func readInherit(at strictyaml.Place) (list Inherit) {
	if n := at.Node; n.Kind == strictyaml.KindText && n.Text == "all" {
		at.Record("all")
		return slices.Clone(InheritAll)
	}
	if at.Node.Origin != "" && at.Node.Kind == strictyaml.KindText {
		at.Node = at.Node.SplitText()
	}
	if at.Node.Kind != strictyaml.KindList {
		at.Bad("%v, where all or a list of names is expected, such as [SSH_AUTH_SOCK]", at.Node.Kind)
		return nil
	}
	list = Inherit{}
	ok := at.Each(func(at strictyaml.Place) {
		text, ok := at.Text()
		switch {
		case !ok:
		case !inheritName.MatchString(text):
			at.Bad("%q is not the name of a variable, such as SSH_AUTH_SOCK or AWS_*", text)
		case slices.Contains(list, text):
			at.Bad("%q is given already", text)
		default:
			list = append(list, text)
		}
	})
	if ok {
		at.Record(jsonText([]string(list)))
	}
	return list
}
