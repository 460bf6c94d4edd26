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

// MaxFile is the number of bytes that a file has at most.
const MaxFile = 1 << 20

const (
	maxTokens = 30_000  // the parser takes time that grows with the square of the keys of a map
	maxColumn = 10_000  // of a token: "- - - -" nests, and the parser recurses
	maxFlow   = 100     // brackets inside brackets
	maxNodes  = 100_000 // with aliases written out; long texts count as several
)

// syntaxError is a problem for which the file as a whole can't be read.
type syntaxError struct {
	line, col int // 0 if it is about no line
	msg       string
}

func (e *syntaxError) Error() string { return e.msg }

// parse reads the one document of a file.
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
	// Keys given twice are found here and not by the parser, which would stop at
	// the first.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, newSyntaxError(err, data)
	}
	return document(file)
}

// checkBytes refuses data that can't be a YAML file, for which the parser's message
// would be less clear.
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

// checkTokens refuses files that would keep the parser busy for long or overflow its
// stack.
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

// newSyntaxError returns the parser's error as ours.
func newSyntaxError(err error, data []byte) error {
	e, ok := errors.AsType[yaml.Error](err)
	if !ok || e.GetToken() == nil {
		return &syntaxError{0, 0, err.Error()}
	}
	at := e.GetToken().Position
	msg := e.GetMessage()
	lines := bytes.Split(data, []byte("\n"))
	for _, l := range []int{at.Line, at.Line + 1} { // the parser may blame the line before
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

// document returns the one document of the file, nil if there is none.
func document(file *ast.File) (*Node, error) {
	var body ast.Node
	for _, doc := range file.Docs {
		if _, directive := doc.Body.(*ast.DirectiveNode); directive || doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, &syntaxError{doc.Body.GetToken().Position.Line, 1, "the file has several documents (---); one is read"}
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

// converter makes nodes of the parser's tree. It stops at the first error.
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
		return c.fail(n, "%s: tags are not used; put quotes around a text", n.GetToken().Value)
	default:
		return c.fail(n, "%s is not a value that is used here", n.GetToken().Value)
	}
	if out.size > maxNodes {
		return c.fail(n, "aliases make more than %d values of the file", maxNodes)
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

// mapping reads a map. Its position is that of its first key, because the parser's is
// that of a colon.
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
			c.fail(v.Key, "%q is not a key; keys are texts", v.Key.GetToken().Value)
			return
		}
		out.Pairs = append(out.Pairs, Pair{key, val})
	}
	own := map[string]bool{}
	for _, p := range out.Pairs {
		own[p.Key.Text] = true
	}
	for _, p := range merged { // the map's own keys win
		if !own[p.Key.Text] {
			own[p.Key.Text] = true
			out.Pairs = append(out.Pairs, p)
		}
	}
}

// merge returns the pairs that "<<" brings in.
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

// splitLines returns the lines of a file without their ends.
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
