package session

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
)

// data has the fields that the templates of commands can use.
type data struct {
	Session string // session id, in the format of assistants
	Name    string
	Attempt int
}

// fallbackData has the fields that the templates of a fallback's commands can use.
type fallbackData struct {
	data
	Prompt string
}

var sample = data{"00000000-0000-4000-8000-000000000000", "sample", 1}

// render executes the templates of a command.
func render(argv []string, d any) ([]string, error) {
	out := make([]string, len(argv))
	for i, arg := range argv {
		if !strings.Contains(arg, "{{") {
			out[i] = arg
			continue
		}
		t, err := template.New("arg").Option("missingkey=error").Parse(arg)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", arg, err)
		}
		var b strings.Builder
		if err := t.Execute(&b, d); err != nil {
			fields := ".Session, .Name and .Attempt"
			if _, handedOver := d.(fallbackData); handedOver {
				fields = ".Prompt, " + fields
			}
			return nil, fmt.Errorf("%q: %w: the fields are %s", arg, err, fields)
		}
		out[i] = b.String()
	}
	return out, nil
}

// mentions reports whether a template of the command uses the field, on any branch. A template
// that can't be parsed uses none.
func mentions(argv []string, field string) bool {
	return slices.ContainsFunc(argv, func(arg string) bool {
		t, err := template.New("arg").Parse(arg)
		return err == nil && slices.ContainsFunc(t.Templates(), func(t *template.Template) bool { return t.Tree != nil && uses(t.Root, field) })
	})
}

// uses reports whether a node of a template may print the field. A dot alone, which may stand for
// all fields, counts as every field.
func uses(n parse.Node, field string) bool {
	switch n := n.(type) {
	case *parse.FieldNode:
		return n.Ident[0] == field
	case *parse.VariableNode: // $.Field, or $ alone
		return n.Ident[0] == "$" && (len(n.Ident) == 1 || n.Ident[1] == field)
	case *parse.DotNode:
		return true
	}
	return slices.ContainsFunc(children(n), func(n parse.Node) bool { return uses(n, field) })
}

// children returns the nodes inside a node of a template.
func children(n parse.Node) (list []parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		return n.Nodes
	case *parse.ActionNode:
		return []parse.Node{n.Pipe}
	case *parse.TemplateNode:
		if n.Pipe != nil {
			list = append(list, n.Pipe)
		}
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			list = append(list, c)
		}
	case *parse.CommandNode:
		return n.Args
	case *parse.IfNode:
		return branches(&n.BranchNode)
	case *parse.WithNode:
		return branches(&n.BranchNode)
	case *parse.RangeNode:
		return branches(&n.BranchNode)
	case *parse.ChainNode:
		return []parse.Node{n.Node}
	}
	return list
}

func branches(b *parse.BranchNode) []parse.Node {
	list := []parse.Node{b.Pipe, b.List}
	if b.ElseList != nil {
		list = append(list, b.ElseList)
	}
	return list
}

// sessionID returns the session id of a run, in the form of a random UUID. It is derived from the
// run, so that it is the same after a restart, and different for each generation.
func sessionID(run string, generation int) string {
	sum := sha256.Sum256([]byte("tideover session " + run + " " + strconv.Itoa(generation)))
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
