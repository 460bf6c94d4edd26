package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// layered reads a section whose keys environment variables and flags can also set. If the
// file does not have the section, its keys get their defaults.
func (r *sharedReader) layered(at place, keys []key) (found map[string]place) {
	if at = orMap(at); at.IsMap() {
		at.Node = r.layers(at, keys)
	}
	found, _ = strictyaml.Object(at, keys)
	return found
}

// layers returns a copy of a section in which environment variables replace values of the
// file, and flags replace both. The variable of server.max-body is
// TIDEOVER_SERVER_MAX_BODY.
func (r *sharedReader) layers(at place, keys []key) *strictyaml.Node {
	n := *at.Node
	n.Pairs = slices.Clone(at.Node.Pairs)
	prefix := "TIDEOVER_" + strings.ToUpper(at.Path()) + "_"
	var names []string
	set := map[string]func(*strictyaml.Node){} // by key; a key inside of another is "tls-cert"
	add := func(name string, f func(*strictyaml.Node)) {
		names, set[name] = append(names, name), f
		variable := prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if v := r.env[variable]; v != "" { // an empty variable counts as not set
			f(strictyaml.NewText(v, "env "+variable))
		}
	}
	for _, k := range keys {
		add(k.Name, func(val *strictyaml.Node) { n.Set(k.Name, val) })
		for _, inner := range k.Inside {
			add(k.Name+"-"+inner, func(val *strictyaml.Node) { n.SetInside(k.Name, inner, val) })
		}
	}
	for _, variable := range slices.Sorted(maps.Keys(r.env)) {
		rest, ours := strings.CutPrefix(variable, prefix)
		name := strings.ReplaceAll(strings.ToLower(rest), "_", "-")
		if ours && set[name] == nil {
			at.Document().Place("", strictyaml.NewText("", "env "+variable)).Bad("%s", strictyaml.UnknownKey(name, names))
		}
	}
	flags := r.flagsOf(at.Path())
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		val := strictyaml.NewText(flags[name], "flag --"+name)
		if set[name] == nil {
			at.Document().Place("", val).Bad("%s", strictyaml.UnknownKey(name, names))
			continue
		}
		set[name](val)
	}
	return &n
}

// flagsOf returns the flags of a section by key. Flags without a section belong to the
// section server.
func (r *sharedReader) flagsOf(section string) map[string]string {
	flags := map[string]string{}
	for flag, value := range r.flags {
		of, name, said := strings.Cut(flag, ".")
		if !said {
			of, name = "server", flag
		}
		if of == section {
			flags[name] = value
		}
	}
	return flags
}
