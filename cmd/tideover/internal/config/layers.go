package config

import (
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// layered reads a section that variables and flags can set, too. It has defaults also if
// the file does not have it.
func (r *sharedReader) layered(at place, keys []key) (found map[string]place) {
	if at = at.OrMap(); at.IsMap() {
		at.Node = r.layers(at, keys)
	}
	found, _ = strictyaml.Object(at, keys)
	return found
}

// layers returns a section with what variables and flags say in it. The variable
// of server.max-body is TIDEOVER_SERVER_MAX_BODY.
func (r *sharedReader) layers(at place, keys []key) *strictyaml.Node {
	n := *at.Node
	n.Pairs = slices.Clone(at.Node.Pairs)
	prefix := "TIDEOVER_" + strings.ToUpper(at.Path()) + "_"
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
		variable := prefix + strings.ToUpper(strings.ReplaceAll(k.Name, "-", "_"))
		if v := r.env[variable]; v != "" { // an empty one is as good as none
			n.Set(k.Name, strictyaml.NewText(v, "env "+variable))
		}
		for _, inner := range k.Inside {
			names = append(names, k.Name+"-"+inner)
			variable := variable + "_" + strings.ToUpper(inner)
			if v := r.env[variable]; v != "" {
				n.SetInside(k.Name, inner, strictyaml.NewText(v, "env "+variable))
			}
		}
	}
	for _, v := range r.env.withPrefix(prefix) {
		name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(v, prefix)), "_", "-")
		if !slices.Contains(names, name) {
			at.Document().Place("", strictyaml.NewText("", "env "+v)).Bad("%s", strictyaml.UnknownKey(name, names))
		}
	}
	for _, f := range r.flagsOf(at.Path()) {
		if !slices.Contains(names, f.Key.Text) {
			at.Document().Place("", f.Val).Bad("%s", strictyaml.UnknownKey(f.Key.Text, names))
			continue
		}
		if outer, inner, ok := strings.Cut(f.Key.Text, "-"); ok && hasInside(keys, outer, inner) {
			n.SetInside(outer, inner, f.Val)
		} else {
			n.Set(f.Key.Text, f.Val)
		}
	}
	return &n
}

// hasInside reports whether a key has another inside, which has a flag of its own.
func hasInside(keys []key, outer, inner string) bool {
	return slices.ContainsFunc(keys, func(k key) bool {
		return k.Name == outer && slices.Contains(k.Inside, inner)
	})
}

// flagsOf returns the flags of a section, sorted. Those without a section are the
// server's.
func (r *sharedReader) flagsOf(section string) (flags []strictyaml.Pair) {
	for flag, value := range r.flags {
		of, name, said := strings.Cut(flag, ".")
		if !said {
			of, name = "server", flag
		}
		if of == section {
			origin := "flag --" + name
			flags = append(flags, strictyaml.Pair{Key: strictyaml.NewText(name, origin), Val: strictyaml.NewText(value, origin)})
		}
	}
	slices.SortFunc(flags, func(a, b strictyaml.Pair) int { return strings.Compare(a.Key.Text, b.Key.Text) })
	return flags
}
