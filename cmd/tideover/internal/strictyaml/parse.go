package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxFile is the most bytes in a file.
const MaxFile = 1 << 20

const (
	maxTokens = 30_000  // the parser's time grows with the square of the number of keys in a map
	maxColumn = 10_000  // of a token: each dash in "- - - -" is a level, and the parser recurses
	maxFlow   = 100     // levels of brackets inside brackets
	maxNodes  = 100_000 // values after aliases are expanded; a long text counts as several
)

// syntaxError is a problem that makes the whole file unreadable.
type syntaxError struct {
	line, col int // 0 if the position is unknown
	msg       string
}

func (e *syntaxError) Error() string { return e.msg }

// parse parses a file and returns its only document, nil if it has none.
func parse(data []byte) (root *Node, err error) {
	if err := checkBytes(data); err != nil {
		return nil, err
	}
	// go-yaml panics on some malformed inputs.
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, &syntaxError{0, 0, fmt.Sprintf("not readable as YAML: %v", r)}
		}
	}()
	tokens := lexer.Tokenize(string(bytes.TrimPrefix(data, []byte("\ufeff"))))
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	// The parser would stop at the first duplicate key; CheckKeys reports all of them.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, newSyntaxError(err, data)
	}
	return document(file)
}

// checkBytes refuses data that can't be a YAML file, with a clearer message than the
// parser's.
func checkBytes(data []byte) error {
	switch {
	case len(data) > MaxFile:
		return &syntaxError{0, 0, fmt.Sprintf("the file has %d bytes; at most %d are read", len(data), MaxFile)}
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return &syntaxError{1, 1, "the file is UTF-16; save it as UTF-8"}
	}
	for i, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) {
			return &syntaxError{i + 1, 1, "the file is not UTF-8"}
		}
		if at := bytes.IndexFunc(line, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' || r == 0x7f }); at >= 0 {
			return &syntaxError{i + 1, utf8.RuneCount(line[:at]) + 1, fmt.Sprintf("the character %U is not allowed", line[at])}
		}
	}
	return nil
}

// checkTokens refuses files that would take the parser too long or overflow its stack.
func checkTokens(tokens token.Tokens) error {
	depth, count := 0, 0
	for _, tk := range tokens {
		at := tk.Position
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.CommentType:
			continue
		default:
		}
		count++
		switch {
		case depth > maxFlow:
			return &syntaxError{at.Line, at.Column, fmt.Sprintf("brackets are nested more than %d deep", maxFlow)}
		case count > maxTokens:
			return &syntaxError{at.Line, at.Column, fmt.Sprintf("the file has more than %d words and signs", maxTokens)}
		case at.Column > maxColumn:
			return &syntaxError{at.Line, 1, fmt.Sprintf("the line has values after column %d", maxColumn)}
		}
	}
	return nil
}

// newSyntaxError converts an error of the parser. If a tab in the indent is the likely
// cause, the message says so.
func newSyntaxError(err error, data []byte) error {
	e, ok := errors.AsType[yaml.Error](err)
	if !ok || e.GetToken() == nil {
		return &syntaxError{0, 0, err.Error()}
	}
	at := e.GetToken().Position
	msg := e.GetMessage()
	lines := bytes.Split(data, []byte("\n"))
	for _, l := range []int{at.Line, at.Line + 1} { // the parser may report the line before the tab
		if l < 1 || l > len(lines) {
			continue
		}
		line := lines[l-1]
		indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
		if tab := bytes.IndexByte(indent, '\t'); tab >= 0 {
			return &syntaxError{l, tab + 1, "there is a tab in the indent; YAML indents with spaces"}
		}
	}
	return &syntaxError{at.Line, at.Column, msg}
}

// document returns the only document of the file, nil if there is none.
func document(file *ast.File) (*Node, error) {
	var body ast.Node
	for _, doc := range file.Docs {
		if _, directive := doc.Body.(*ast.DirectiveNode); directive || doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, &syntaxError{doc.Body.GetToken().Position.Line, 1, "the file has several YAML documents (---); it can have only one"}
		}
		body = doc.Body
	}
	if body == nil {
		return nil, nil
	}
	c := converter{anchors: map[string]*Node{}}
	n := c.node(body)
	return n, c.err
}

// converter converts the parser's tree to nodes. It stops at the first error.
type converter struct {
	anchors map[string]*Node // nil while the anchor's value is being read
	err     error
}

func (c *converter) fail(n ast.Node, format string, args ...any) *Node {
	if c.err == nil {
		at := n.GetToken().Position
		c.err = &syntaxError{at.Line, at.Column, fmt.Sprintf(format, args...)}
	}
	return &Node{size: 1}
}

func (c *converter) node(n ast.Node) *Node {
	if n == nil || c.err != nil {
		return &Node{size: 1}
	}
	at := n.GetToken().Position
	out := &Node{Text: n.GetToken().Value, Line: at.Line, Column: at.Column}
	out.size = 1 + len(out.Text)/64
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		out.Kind, out.Value = KindBool, n.Value
	case *ast.IntegerNode:
		out.Kind, out.Value = KindInt, n.Value
	case *ast.FloatNode:
		out.Kind, out.Value = KindFloat, n.Value
	case *ast.StringNode:
		out.Kind, out.Text, out.Value = KindText, n.Value, n.Value
	case *ast.LiteralNode:
		out.Kind, out.Text, out.Value = KindText, n.Value.Value, n.Value.Value
		out.size = 1 + len(out.Text)/64
	case *ast.SequenceNode:
		c.list(out, n)
	case *ast.MappingNode:
		c.mapping(out, n.Values)
	case *ast.MappingValueNode:
		c.mapping(out, []*ast.MappingValueNode{n})
	case *ast.AnchorNode:
		return c.anchor(n)
	case *ast.AliasNode:
		return c.alias(n)
	case *ast.TagNode:
		return c.fail(n, "%s: YAML tags are not supported; put quotes around a text", n.GetToken().Value)
	default:
		return c.fail(n, "%s: this YAML value is not supported", n.GetToken().Value)
	}
	if out.size > maxNodes {
		return c.fail(n, "the file has more than %d values after its aliases are expanded", maxNodes)
	}
	return out
}

func (c *converter) list(out *Node, n *ast.SequenceNode) {
	out.Kind = KindList
	for _, v := range n.Values {
		item := c.node(v)
		out.Items = append(out.Items, item)
		out.size += item.size
	}
}

// mapping converts a map. The position of the node is that of the first key; the parser
// has the position of the colon.
func (c *converter) mapping(out *Node, values []*ast.MappingValueNode) {
	out.Kind = KindMap
	if len(values) > 0 && out.Text != "{" {
		at := values[0].Key.GetToken().Position
		out.Line, out.Column = at.Line, at.Column
	}
	var merged []Pair
	for _, v := range values {
		val := c.node(v.Value)
		out.size += val.size + 1
		if v.Key.IsMergeKey() {
			merged = append(merged, c.merge(v, val)...)
			continue
		}
		key := c.node(v.Key)
		if !key.IsScalar() {
			c.fail(v.Key, "%q can't be a key; a key must be a text", v.Key.GetToken().Value)
			return
		}
		out.Pairs = append(out.Pairs, Pair{key, val})
	}
	own := map[string]bool{}
	for _, p := range out.Pairs {
		own[p.Key.Text] = true
	}
	for _, p := range merged { // the map's own keys override merged ones
		if !own[p.Key.Text] {
			own[p.Key.Text] = true
			out.Pairs = append(out.Pairs, p)
		}
	}
}

// merge returns the pairs that the merge key "<<" adds to a map.
func (c *converter) merge(v *ast.MappingValueNode, val *Node) (pairs []Pair) {
	sources := []*Node{val}
	if val.Kind == KindList {
		sources = val.Items
	}
	for _, s := range sources {
		if s.Kind != KindMap {
			c.fail(v.Key, "<< takes a map or a list of maps")
			return nil
		}
		pairs = append(pairs, s.Pairs...)
	}
	return pairs
}

func (c *converter) anchor(n *ast.AnchorNode) *Node {
	name := n.Name.GetToken().Value
	c.anchors[name] = nil
	val := c.node(n.Value)
	c.anchors[name] = val
	return val
}

func (c *converter) alias(n *ast.AliasNode) *Node {
	name := n.Value.GetToken().Value
	val, ok := c.anchors[name]
	switch {
	case !ok:
		return c.fail(n, "*%s: there is no anchor &%s above", name, name)
	case val == nil:
		return c.fail(n, "*%s refers to a value that contains it", name)
	}
	return val
}

// splitLines returns the lines of a file without line breaks.
func splitLines(data []byte) []string {
	lines := strings.Split(string(bytes.TrimPrefix(data, []byte("\ufeff"))), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	return lines
}

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

// String returns a name of the kind for messages, such as "a list".
func (k Kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a number", "a text", "a list", "a map"}[k]
}

// Node is a value of a file, with aliases resolved. Values that do not come from the
// file, such as defaults, are nodes too and have an origin.
type Node struct {
	Kind         Kind
	Text         string // a scalar as in the file, a string without its quotes
	Value        any    // the Go value of a scalar: bool, string or a number
	Line, Column int
	Origin       string // where the value comes from; empty means the file
	Items        []*Node
	Pairs        []Pair

	size int // number of nodes in it after aliases are expanded
}

// Pair is an entry of a map.
type Pair struct{ Key, Val *Node }

// NewText returns a node for a text that does not come from the file.
func NewText(text, origin string) *Node {
	return &Node{Kind: KindText, Text: text, Value: text, Origin: origin}
}

// NewMap returns a node for an empty map.
func NewMap() *Node { return &Node{Kind: KindMap} }

// SplitText splits a text at its commas and returns the parts as a list.
func (n *Node) SplitText() *Node {
	list := &Node{Kind: KindList, Origin: n.Origin}
	for part := range strings.SplitSeq(n.Text, ",") {
		list.Items = append(list.Items, NewText(strings.TrimSpace(part), n.Origin))
	}
	return list
}

// Get returns the value of a key of a map, nil if the map does not have it.
func (n *Node) Get(name string) *Node {
	for _, p := range n.Pairs {
		if p.Key.Text == name {
			return p.Val
		}
	}
	return nil
}

// Set sets the value of a key of a map.
func (n *Node) Set(name string, val *Node) {
	n.Pairs = slices.DeleteFunc(n.Pairs, func(p Pair) bool { return p.Key.Text == name })
	n.Pairs = append(n.Pairs, Pair{NewText(name, val.Origin), val})
}

// SetInside sets the key inner in a copy of the map that is the value of the key name. It
// adds that map if there is none.
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

// Plain returns the node as maps, slices and scalars, as [encoding/json] would decode it,
// except that integers stay exact.
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
