package config

import "fmt"

// kind is what a node of the file is.
type kind uint8

const (
	nullKind kind = iota
	boolKind
	intKind
	floatKind
	stringKind
	listKind
	mapKind
)

// String names the kind as a person who writes YAML would.
func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a number", "a text", "a list", "a map"}[k]
}

// node is a value of the file, with aliases resolved. Values that do not come
// from the file, such as defaults, are nodes too and have an origin.
type node struct {
	kind      kind
	text      string // a scalar as it is written, a string without its quotes
	value     any    // a scalar's value
	line, col int
	origin    string // where it comes from, if not from the file
	items     []*node
	pairs     []pair
	size      int // nodes in it, aliases spelled out
}

// pair is an entry of a map.
type pair struct {
	key *node
	val *node
}

// get returns the value of a key, nil if there is none.
func (n *node) get(name string) *node {
	for _, p := range n.pairs {
		if p.key.text == name {
			return p.val
		}
	}
	return nil
}

// scalar reports whether the node has a text: it is neither null nor a
// collection.
func (n *node) scalar() bool {
	return n.kind == boolKind || n.kind == intKind || n.kind == floatKind || n.kind == stringKind
}

// plain returns the node as the value that its JSON would decode to, integers
// aside, which stay exact.
func (n *node) plain() any {
	switch n.kind {
	case listKind:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = item.plain()
		}
		return list
	case mapKind:
		m := make(map[string]any, len(n.pairs))
		for _, p := range n.pairs {
			m[p.key.text] = p.val.plain()
		}
		return m
	default:
		return n.value
	}
}

// given returns a node for a text that does not come from the file.
func given(text, origin string) *node {
	return &node{kind: stringKind, text: text, value: text, origin: origin}
}

// place is a node and the way to it.
type place struct {
	path string // such as workflows.nightly.steps[0].policy
	node *node
}

func (p place) child(name string, n *node) place {
	if p.path != "" {
		name = p.path + "." + name
	}
	return place{name, n}
}

func (p place) index(i int) place {
	return place{fmt.Sprintf("%s[%d]", p.path, i), p.node.items[i]}
}
