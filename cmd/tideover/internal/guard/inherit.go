package guard

import (
	"encoding/json"
	"slices"
	"strings"
)

// Inherit has the names of the variables of this process that a command gets, in addition
// to [BaseVariables]. A name that ends in * stands for all that begin so, "*" for all.
type Inherit []string

// InheritAll is `env-inherit: all`.
var InheritAll = Inherit{"*"}

// BaseVariables are the variables of this process that every command gets, except
// settings of the server.
var BaseVariables = Inherit{"PATH", "HOME", "USER", "LANG", "LC_*", "TZ", "TMPDIR", "TIDEOVER_*"}

// Has reports whether the variable is one of them.
func (i Inherit) Has(name string) bool {
	return slices.ContainsFunc(i, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return name == pattern || open && strings.HasPrefix(name, prefix)
	})
}

// Plus returns the names of both, each once.
func (i Inherit) Plus(more Inherit) Inherit {
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
