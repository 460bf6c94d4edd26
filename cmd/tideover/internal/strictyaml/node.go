package strictyaml

import (
	"slices"
	"strings"
)

// Kind is the kind of a [Node].
type Kind uint8

// The kinds of values.
const (
	KindNull Kind = iota
	KindBool
	KindInt
	KindFloat
	KindText
	KindList
	KindMap
)

// String names the kind in the words of a person who writes YAML.
func (k Kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a number", "a text", "a list", "a map"}[k]
}

// Node is a value of a file, with aliases resolved. Values that do not come from the
// file, such as defaults, are nodes too and have an origin.
type Node struct {
	Kind         Kind
	Text         string // a scalar as it is written, a string without its quotes
	Value        any    // a scalar's value
	Line, Column int
	Origin       string // where the value comes from; empty means the file
	Items        []*Node
	Pairs        []Pair

	size int // number of nodes in it, aliases written out
}

// Pair is an entry of a map.
type Pair struct{ Key, Val *Node }

// NewText returns a node for a text that does not come from the file.
func NewText(text, origin string) *Node {
	return &Node{Kind: KindText, Text: text, Value: text, Origin: origin}
}

// NewMap returns a node for an empty map.
func NewMap() *Node { return &Node{Kind: KindMap} }

// SplitText returns the list of the parts of a text that has commas between them.
func (n *Node) SplitText() *Node {
	list := &Node{Kind: KindList, Origin: n.Origin}
	for part := range strings.SplitSeq(n.Text, ",") {
		list.Items = append(list.Items, NewText(strings.TrimSpace(part), n.Origin))
	}
	return list
}

// Get returns the value of a key, nil if there is none.
func (n *Node) Get(name string) *Node {
	for _, p := range n.Pairs {
		if p.Key.Text == name {
			return p.Val
		}
	}
	return nil
}

// Set sets the value of a key.
func (n *Node) Set(name string, val *Node) {
	n.Pairs = slices.DeleteFunc(n.Pairs, func(p Pair) bool { return p.Key.Text == name })
	n.Pairs = append(n.Pairs, Pair{NewText(name, val.Origin), val})
}

// SetInside sets the value of a key of the map that is the value of a key.
func (n *Node) SetInside(name, inner string, val *Node) {
	m := NewMap()
	if old := n.Get(name); old != nil && old.Kind != KindNull {
		*m = *old
		m.Pairs = slices.Clone(old.Pairs)
	}
	m.Set(inner, val)
	n.Set(name, m)
}

// IsScalar reports whether the node has a text: it is neither null nor a list nor a map.
func (n *Node) IsScalar() bool {
	return n.Kind == KindBool || n.Kind == KindInt || n.Kind == KindFloat || n.Kind == KindText
}

// Plain returns the value that the node's JSON would decode to, except that integers
// stay exact.
func (n *Node) Plain() any {
	switch n.Kind {
	case KindList:
		list := make([]any, len(n.Items))
		for i, item := range n.Items {
			list[i] = item.Plain()
		}
		return list
	case KindMap:
		m := make(map[string]any, len(n.Pairs))
		for _, p := range n.Pairs {
			m[p.Key.Text] = p.Val.Plain()
		}
		return m
	default:
		return n.Value
	}
}
