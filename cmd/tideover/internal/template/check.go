package template

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/textfmt"
)

// Fields are the fields that the templates of one text may use.
type Fields struct {
	First []string // fields of the data, such as input, steps, run; none means that templates can't use data
	Input []string // fields of .input; nil means any
	Run   []string // fields of .run; nil means all

	// Quotes has the fields of a message that may quote the input of a run. It is nil
	// except for the templates of notifiers.
	Quotes []string
}

// Variable is a field that templates may use, with its description for the documentation.
type Variable struct {
	Name   string
	Doc    string
	Fields []Variable // the fields inside of it; nil means any, empty means none
}

// Names returns the names of the variables.
func Names(list []Variable) []string {
	all := make([]string, len(list))
	for i, v := range list {
		all[i] = v.Name
	}
	return all
}

// Variables returns the fields of the data of the templates of workflows. Which of them a text may
// use depends on its [Fields].
func Variables() []Variable { return variables }

// Results returns the fields of the results of steps. Which of them a step has depends on its kind:
// see [StepUse].
func Results() []Variable { return slices.Concat(actionResults, formResults) }

var (
	variables = []Variable{
		{"input", "Input of the run, with any fields: `.input.day`. For a field that may be missing, write `{{ default \"x\" (index .input \"day\") }}`.", nil},
		{"steps", "Results of the steps in `needs`, by id: `.steps.fetch.stdout`. For an id with a hyphen, write `{{ (step \"a-b\").stdout }}`.", nil},
		{"run", "The run.", []Variable{
			{"id", "Id of the run.", nil},
			{"workflow", "Name of the workflow.", nil},
			{"key", "Key that the run was started with; empty if it has none.", nil},
			{"origin", "Id of the first run, if this run repeats another one; else `.run.id`.", nil},
			{"origin_key", "Key of the first run, if this run repeats another one; else `.run.key`.", nil},
			{"attempt", "Number of the attempt, from 1. In `on-give-up`: how many attempts the step made.", nil},
			{"step", "In `on-give-up`: the step that gave up. Otherwise empty.", nil},
			{"reason", "In `on-give-up`: why there was no further attempt. Otherwise empty.", nil},
			{"error", "In `on-give-up`: the last error. Otherwise empty.", nil},
		}},
		{"schedule", "The schedule.", []Variable{
			{"time", "Time that the run was scheduled for, in RFC 3339; empty if no schedule started the run.", nil},
		}},
		{"today", "Day on which the run starts, or for which it was scheduled, such as 2026-11-18.", []Variable{}},
		{"item", "Item of the list.", nil},
		{"index", "Number of the item, from 0.", []Variable{}},
		{"result", "Result of the step that is undone.", actionResults},
	}

	// actionResults are the fields of the results of commands and requests.
	actionResults = []Variable{
		{"stdout", "Standard output of the command, or body of the response; at most `output-limit` of it.", nil},
		{"stderr", "Standard error of the command; at most `output-limit` of it.", nil},
		{"output", "`stdout` as JSON, null if it is no JSON; payload of the signal; output of the child.", nil},
		{"exit", "Exit code of the command; -1 in `on-give-up` if the step has no result.", nil},
		{"status", "HTTP status of the response; 0 for a command.", nil},
		{"truncated", "Whether `stdout` or `stderr` was longer than `output-limit`.", nil},
	}

	// formResults are the fields of the results of other steps, and of steps that may be skipped.
	formResults = []Variable{
		{"skipped", "Whether the step was skipped, for a step with `when`.", nil},
		{"choice", "The answer, such as `approve`.", nil},
		{"by", "Name of the person who answered.", nil},
		{"words", "What the person added to the answer.", nil},
		{"timed_out", "Whether the signal or the answer did not come in time.", nil},
	}

	rootFields, resultFields, actionFields = fieldNames(), Names(Results()), Names(actionResults)
)

// fieldNames returns the fields inside of each variable; nil means any.
func fieldNames() map[string][]string {
	all := map[string][]string{}
	for _, v := range variables {
		all[v.Name] = nil
		if v.Fields != nil {
			all[v.Name] = Names(v.Fields)
		}
	}
	return all
}

// checker walks a template. It collects the fields and steps that the template names by
// constants, and changes the template so that [printText] formats every printed value.
type checker struct {
	fields  Fields
	uses    []StepUse
	foreign bool  // see [Text.Foreign]
	err     error // the first problem
}

// check returns an error if the template uses a field that is not in fields. It sets uses
// and foreign.
func (t *Text) check(fields Fields) error {
	if len(t.tmpl.Templates()) > 1 {
		return fmt.Errorf("template: define and block are not supported")
	}
	c := checker{fields: fields}
	if t.tmpl.Tree != nil {
		c.walk(t.tmpl.Root, true)
	}
	slices.SortFunc(c.uses, func(a, b StepUse) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Field, b.Field)) })
	t.uses, t.foreign, t.single = slices.Compact(c.uses), c.foreign, t.isSingle()
	return c.err
}

// StepUse is the use of a step's result in a text.
type StepUse struct {
	ID    string
	Field string // such as stdout; "" if the text uses the whole result
}

// isSingle reports whether the text consists of one template that prints a value, perhaps between
// white space.
func (t *Text) isSingle() bool {
	if t.tmpl.Tree == nil {
		return false
	}
	actions := 0
	for _, n := range t.tmpl.Root.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
			if len(bytes.TrimSpace(n.Text)) > 0 {
				return false
			}
		case *parse.ActionNode:
			if len(n.Pipe.Decl) > 0 {
				return false
			}
			actions++
		default:
			return false
		}
	}
	return actions == 1
}

func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("template: "+format, args...)
	}
}

// walk visits a node. atRoot is true outside of range and with, where the dot is the data
// itself.
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
		c.fail("the action template is not supported")
	case *parse.PipeNode:
		for _, cmd := range n.Cmds {
			c.command(cmd, atRoot)
		}
	case *parse.ChainNode:
		c.chain(n, atRoot)
	default:
		c.value(n, atRoot)
	}
}

// value visits a node that names a value: a field, a variable, the dot or a function.
func (c *checker) value(n parse.Node, atRoot bool) {
	switch n := n.(type) {
	case *parse.FieldNode:
		if atRoot {
			c.field(n.Ident)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			c.field(n.Ident[1:])
		}
	case *parse.DotNode:
		c.foreign = c.foreign || atRoot // inside of range and with, the dot comes from a pipeline that walk has checked
	case *parse.IdentifierNode:
		c.foreign = c.foreign || n.Ident == "step" // a call with a constant id does not get here; see command
		if n.Ident == printCall {
			c.fail("function %q not defined", printCall) // only the checker may insert it
		}
	}
}

// printCommand returns a call of [printText], which formats the value of an action. Its
// argument is the text of the action, for errors.
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

// command visits a call. If the call names a step by a constant, it checks the step.
func (c *checker) command(n *parse.CommandNode, atRoot bool) {
	if id, rest, ok := stepCall(n, atRoot); ok {
		c.step(id, rest)
		return
	}
	for _, arg := range n.Args {
		c.walk(arg, atRoot)
	}
}

// stepCall returns the id of the step if the call is step "a-b" or index .steps "a-b".
// fields are the further arguments of index.
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

// chain visits a field of a call, such as (step "a-b").stdout.
func (c *checker) chain(n *parse.ChainNode, atRoot bool) {
	if p, ok := n.Node.(*parse.PipeNode); ok && len(p.Cmds) == 1 {
		if id, rest, ok := stepCall(p.Cmds[0], atRoot); ok {
			c.step(id, append(rest, n.Field...))
			return
		}
	}
	c.walk(n.Node, atRoot)
}

// field checks a path that starts at the data, such as .steps.fetch.stdout.
func (c *checker) field(way []string) {
	c.foreign = c.foreign || !c.fields.isOurs(way)
	if len(way) == 0 {
		return
	}
	first, rest := way[0], way[1:]
	if len(c.fields.First) == 0 {
		c.fail("there is no .%s here; templates in this text can't use data", first)
		return
	}
	if !slices.Contains(c.fields.First, first) {
		c.fail("there is no .%s here; want .%s", first, strings.Join(c.fields.First, ", ."))
		return
	}
	known := rootFields[first]
	switch {
	case first == "input":
		known = c.fields.Input
	case first == "run" && c.fields.Run != nil:
		known = c.fields.Run
	}
	switch {
	case len(rest) == 0 || known == nil && first != "steps":
	case first == "steps":
		c.step(rest[0], rest[1:])
	case len(known) == 0:
		c.fail("there is no .%s.%s; .%s has no fields", first, rest[0], first)
	case !slices.Contains(known, rest[0]):
		c.fail("there is no .%s.%s; want %s", first, rest[0], strings.Join(known, ", "))
	}
}

// isOurs reports whether tideover itself makes the value of a field. It is true for an id
// or a time. It is false for values of the caller who starts a run: the input, and an
// error, which may quote the input.
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
	// A step may print its input, but its codes are only numbers.
	c.foreign = c.foreign || len(fields) == 0 || !slices.Contains([]string{"exit", "status", "truncated", "skipped", "timed_out"}, fields[0])
	if !slices.Contains(c.fields.First, "steps") {
		c.fail("results of steps can't be used here")
		return
	}
	use := StepUse{ID: id}
	if len(fields) > 0 {
		use.Field = fields[0]
	}
	if use.Field != "" && !slices.Contains(resultFields, use.Field) {
		c.fail("step %q has no %q; want %s", id, use.Field, strings.Join(actionFields, ", "))
		return
	}
	c.uses = append(c.uses, use)
}
