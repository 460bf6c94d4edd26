package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
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
			at.Bad("%q is listed twice", text)
		default:
			list = append(list, text)
		}
	})
	if ok {
		at.Record(jsonText([]string(list)))
	}
	return list
}

// readCodes reads a list of codes, each within the limits.
func readCodes(at place, what string, least, most int) exitcode.Set {
	codes := exitcode.Set{} // an empty list is one that nothing is in, and not an absent one
	ok := at.Each(func(at place) {
		s, ok := at.Text()
		if !ok {
			return
		}
		r, err := exitcode.ParseRange(s)
		if err != nil {
			at.Bad("%v", err)
		} else if r.First < least || r.Last > most {
			at.Bad("%q: %s is from %d to %d", s, what, least, most)
		} else {
			codes = append(codes, r)
		}
	})
	if ok {
		at.Record(codes.String())
	}
	return codes
}

// jsonText returns a value as JSON, for what has no shorter form.
func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// readAccount reads the name of an account.
func readAccount(at place) string {
	s, ok := at.Text()
	if !ok {
		return ""
	}
	if err := account.CheckName(s); err != nil {
		at.Bad("%v", err)
		return ""
	}
	at.Record(s)
	return s
}

var percentForm = lazyregexp.New(`^0*(100(\.0*)?|[0-9]{1,2}(\.[0-9]*)?|\.[0-9]+)%$`)

func percentSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: percentForm.String(), AllOf: []*jsonschema.Schema{{Pattern: strictyaml.AbovePattern}}}
}

// readPercent reads a share above zero.
func readPercent(at place) float64 {
	s, ok := at.Text()
	if !ok {
		return 0
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || n == 0 || !percentForm.MatchString(s) {
		at.Bad("%q is not a share above zero such as 50%%", s)
		return 0
	}
	at.Record(s)
	return n / 100
}
