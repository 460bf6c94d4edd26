package config

import (
	"slices"
	"strings"
)

// layers returns a section with what variables and flags say in it. The variable
// of server.max-body is TIDEOVER_SERVER_MAX_BODY.
func layers[T any](l *loader, at place, keys []key[T]) *node {
	n := *at.node
	n.pairs = slices.Clone(at.node.pairs)
	prefix := "TIDEOVER_" + strings.ToUpper(at.path) + "_"
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
		variable := prefix + strings.ToUpper(strings.ReplaceAll(k.name, "-", "_"))
		if v := l.env[variable]; v != "" { // an empty one is as good as none
			n.override(k.name, given(v, "env "+variable))
		}
		for _, inner := range k.inside {
			names = append(names, k.name+"-"+inner)
			variable := variable + "_" + strings.ToUpper(inner)
			if v := l.env[variable]; v != "" {
				n.overrideInside(k.name, inner, given(v, "env "+variable))
			}
		}
	}
	for _, v := range l.env.withPrefix(prefix) {
		name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(v, prefix)), "_", "-")
		if !slices.Contains(names, name) {
			l.bad(place{"", given("", "env "+v)}, "%s", unknown(name, names))
		}
	}
	for _, f := range l.flagsOf(at.path) {
		if !slices.Contains(names, f.key.text) {
			l.bad(place{"", f.val}, "%s", unknown(f.key.text, names))
			continue
		}
		if outer, inner, ok := strings.Cut(f.key.text, "-"); ok && hasInside(keys, outer, inner) {
			n.overrideInside(outer, inner, f.val)
		} else {
			n.override(f.key.text, f.val)
		}
	}
	return &n
}

// hasInside reports whether a key has another inside, which has a flag of its own.
func hasInside[T any](keys []key[T], outer, inner string) bool {
	return slices.ContainsFunc(keys, func(k key[T]) bool { return k.name == outer && slices.Contains(k.inside, inner) })
}

// flagsOf returns the flags of a section, sorted. Those without a section are the
// server's.
func (l *loader) flagsOf(section string) (flags []pair) {
	for flag, value := range l.flags {
		of, name, said := strings.Cut(flag, ".")
		if !said {
			of, name = "server", flag
		}
		if of == section {
			origin := "flag --" + name
			flags = append(flags, pair{given(name, origin), given(value, origin)})
		}
	}
	slices.SortFunc(flags, func(a, b pair) int { return strings.Compare(a.key.text, b.key.text) })
	return flags
}

// override sets the value of a key.
func (n *node) override(name string, val *node) {
	n.pairs = slices.DeleteFunc(n.pairs, func(p pair) bool { return p.key.text == name })
	n.pairs = append(n.pairs, pair{given(name, val.origin), val})
}

// overrideInside sets the value of a key of the map that a key has.
func (n *node) overrideInside(name, inner string, val *node) {
	m := node{kind: mapKind}
	if was := n.get(name); was != nil && was.kind != nullKind {
		m = *was
		m.pairs = slices.Clone(was.pairs)
	}
	m.override(inner, val)
	n.override(name, &m)
}
