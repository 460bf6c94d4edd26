package config

import (
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/lazyregexp"
)

const inheritPattern = `^[A-Za-z_][A-Za-z0-9_]*\*?$`

var inheritName = lazyregexp.New(inheritPattern)

const inheritDoc = "Variables of the server's environment that the command gets: a list of names, such as SSH_AUTH_SOCK or AWS_*, or all. "

func inheritSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		strictyaml.WordSchema("all"), {Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: inheritPattern}, UniqueItems: true},
	}}
}

// readInherit reads a list of names, or all. A variable or a flag has names with commas.
func readInherit(at place) (list guard.Inherit) {
	if n := at.Node; n.Kind == strictyaml.KindText && n.Text == "all" {
		at.Record("all")
		return slices.Clone(guard.InheritAll)
	}
	if at.Node.Origin != "" && at.Node.Kind == strictyaml.KindText {
		at.Node = at.Node.SplitText()
	}
	if at.Node.Kind != strictyaml.KindList {
		at.Bad("%v, where all or a list of names is expected, such as [SSH_AUTH_SOCK]", at.Node.Kind)
		return nil
	}
	list = guard.Inherit{}
	ok := at.Each(func(at place) {
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
