package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/cluster"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// layered reads a section whose keys environment variables and flags can also set. If the
// file does not have the section, its keys get their defaults.
func (r *sharedReader) layered(at place, keys []key) (found map[string]place) {
	if at = orMap(at); at.IsMap() {
		at.Node = r.layers(at, keys)
	}
	found, _ = strictyaml.ObjectBeside(at, keys, func(key string) string { return r.keyOfOtherSection(at.Path(), key) })
	return found
}

// keyOfOtherSection returns the path of a key that is not in this section but in one of the other
// sections that environment variables can set, such as server.data for data in the section engine.
// It returns "" if none of them has the key, or several.
func (r *sharedReader) keyOfOtherSection(section, name string) (path string) {
	for _, other := range []struct {
		name string
		keys []key
	}{
		{"server", serverReader{r}.serverKeys(new(Server))},
		{"engine", (&engineReader{sharedReader: r}).engineKeys(new(cluster.Config))},
		{"gateway", gatewayKeys(r, new(Gateway))},
	} {
		if other.name == section || !slices.ContainsFunc(other.keys, func(k key) bool { return k.Name == name }) {
			continue
		}
		if path != "" {
			return ""
		}
		path = other.name + "." + name
	}
	return path
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
