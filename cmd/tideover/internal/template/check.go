package template

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/textfmt"
)

// Fields are the fields that the templates of a place may use.
type Fields struct {
	First []string // such as input, steps, run
	Input []string // those of .input; nil means any

	// Quotes are, of a message, the fields that may quote the input of a run; nil if it is
	// no message.
	Quotes []string
}

// The fields that templates may use, by the first one.
var (
	stepFields = []string{"stdout", "stderr", "output", "exit", "status", "truncated"}
	rootFields = map[string][]string{
		"input": nil, "steps": nil, // any
		"run":      {"id", "workflow", "key", "origin", "origin_key", "attempt", "step", "reason", "error"},
		"schedule": {"time"},
		"today":    {},
	}
)

// checker walks a template: it finds the fields and steps that it uses, as far as they
// are constant, and passes every value that is printed through [printText].
type checker struct {
	fields  Fields
	uses    []string
	foreign bool // see [Text.Foreign]
	err     error
}

// check returns an error if the template uses a field that never exists.
func (t *Text) check(fields Fields) error {
	if len(t.tmpl.Templates()) > 1 {
		return fmt.Errorf("template: define and block are not used here")
	}
	c := checker{fields: fields}
	if t.tmpl.Tree != nil {
		c.walk(t.tmpl.Root, true)
	}
	slices.Sort(c.uses)
	t.uses, t.foreign = slices.Compact(c.uses), c.foreign
	return c.err
}

func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("template: "+format, args...)
	}
}

// walk visits a node. If atRoot, the dot is the data itself, as it is outside of range
// and with.
func (c *checker) walk(n parse.Node, atRoot bool) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, e := range n.Nodes {
			c.walk(e, atRoot)
		}
	case *parse.ActionNode:
		c.walk(n.Pipe, atRoot)
		if len(n.Pipe.Decl) == 0 {
			n.Pipe.Cmds = append(n.Pipe.Cmds, printCommand(n))
		}
	case *parse.IfNode:
		c.branch(&n.BranchNode, atRoot, atRoot)
	case *parse.WithNode:
		c.branch(&n.BranchNode, atRoot, false)
	case *parse.RangeNode:
		c.branch(&n.BranchNode, atRoot, false)
	case *parse.TemplateNode:
		c.fail("template is not used here")
	case *parse.PipeNode:
		for _, cmd := range n.Cmds {
			c.command(cmd, atRoot)
		}
	case *parse.ChainNode:
		c.chain(n, atRoot)
	case *parse.FieldNode:
		if atRoot {
			c.field(n.Ident)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			c.field(n.Ident[1:])
		}
	case *parse.DotNode:
		c.foreign = c.foreign || atRoot // inside of range and with, the pipeline has been checked already
	case *parse.IdentifierNode:
		c.foreign = c.foreign || n.Ident == "step" // its argument is not known yet
		if n.Ident == printCall {
			c.fail("function %q not defined", printCall) // it is ours
		}
	}
}

// printCommand returns the call that prints the value of an action. It has the
// action's text for its errors.
func printCommand(n *parse.ActionNode) *parse.CommandNode {
	written := textfmt.Clip(n.Pipe.String(), strictyaml.MaxQuoted)
	args := []parse.Node{
		parse.NewIdentifier(printCall).SetPos(n.Pos),
		&parse.StringNode{NodeType: parse.NodeString, Pos: n.Pos, Quoted: strconv.Quote(written), Text: written},
	}
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: args}
}

func (c *checker) branch(n *parse.BranchNode, atRoot, inside bool) {
	c.walk(n.Pipe, atRoot)
	c.walk(n.List, inside)
	c.walk(n.ElseList, atRoot)
}

// command visits a call; a call that names a step is checked as such.
func (c *checker) command(n *parse.CommandNode, atRoot bool) {
	if id, rest, ok := stepCall(n, atRoot); ok {
		c.step(id, rest)
		return
	}
	for _, arg := range n.Args {
		c.walk(arg, atRoot)
	}
}

// stepCall returns the step that is named by step "a-b" or index .steps "a-b".
func stepCall(n *parse.CommandNode, atRoot bool) (id string, fields []string, ok bool) {
	name, _ := n.Args[0].(*parse.IdentifierNode)
	switch {
	case name == nil:
		return "", nil, false
	case name.Ident == "step" && len(n.Args) == 2:
		s, ok := n.Args[1].(*parse.StringNode)
		if ok {
			id = s.Text
		}
		return id, nil, ok
	case name.Ident == "index" && len(n.Args) >= 3 && isSteps(n.Args[1], atRoot):
		for _, arg := range n.Args[2:] {
			s, ok := arg.(*parse.StringNode)
			if !ok {
				return "", nil, false
			}
			fields = append(fields, s.Text)
		}
		return fields[0], fields[1:], true
	}
	return "", nil, false
}

// isSteps reports whether the node is .steps or $.steps.
func isSteps(n parse.Node, atRoot bool) bool {
	switch n := n.(type) {
	case *parse.FieldNode:
		return atRoot && slices.Equal(n.Ident, []string{"steps"})
	case *parse.VariableNode:
		return slices.Equal(n.Ident, []string{"$", "steps"})
	}
	return false
}

// chain visits (step "a-b").stdout.
func (c *checker) chain(n *parse.ChainNode, atRoot bool) {
	if p, ok := n.Node.(*parse.PipeNode); ok && len(p.Cmds) == 1 {
		if id, rest, ok := stepCall(p.Cmds[0], atRoot); ok {
			c.step(id, append(rest, n.Field...))
			return
		}
	}
	c.walk(n.Node, atRoot)
}

// field checks a path from the data, such as .steps.fetch.stdout.
func (c *checker) field(way []string) {
	c.foreign = c.foreign || !c.fields.isOurs(way)
	if len(way) == 0 {
		return
	}
	first, rest := way[0], way[1:]
	if len(c.fields.First) == 0 {
		c.fail("there is no .%s here, nor anything else", first)
		return
	}
	if !slices.Contains(c.fields.First, first) {
		c.fail("there is no .%s here; want .%s", first, strings.Join(c.fields.First, ", ."))
		return
	}
	known := rootFields[first]
	if first == "input" {
		known = c.fields.Input
	}
	switch {
	case len(rest) == 0 || known == nil && first != "steps":
	case first == "steps":
		c.step(rest[0], rest[1:])
	case !slices.Contains(known, rest[0]):
		c.fail("there is no .%s.%s; want %s", first, rest[0], strings.Join(known, ", "))
	}
}

// isOurs reports whether the value of a field is made by us and not by the caller who
// starts a run: an id or a time is, the input or an error, which may quote it, is not.
func (r Fields) isOurs(way []string) bool {
	if r.Quotes != nil {
		return len(way) > 0 && !slices.Contains(r.Quotes, way[0])
	}
	if len(way) < 2 {
		return len(way) == 1 && way[0] == "today"
	}
	switch way[0] {
	case "run":
		return slices.Contains([]string{"id", "workflow", "origin", "attempt", "step", "reason"}, way[1])
	case "steps": // see [checker.step]
		return true
	}
	return way[0] == "schedule"
}

func (c *checker) step(id string, fields []string) {
	// A step may print its input; its codes are numbers.
	c.foreign = c.foreign || len(fields) == 0 || !slices.Contains([]string{"exit", "status", "truncated"}, fields[0])
	if !slices.Contains(c.fields.First, "steps") {
		c.fail("results of steps can't be used here")
		return
	}
	if len(fields) > 0 && !slices.Contains(stepFields, fields[0]) {
		c.fail("step %q has no %q; want %s", id, fields[0], strings.Join(stepFields, ", "))
		return
	}
	c.uses = append(c.uses, id)
}
