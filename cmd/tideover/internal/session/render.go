package session

import (
	"crypto/sha256"
	"fmt"
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

// mentions reports whether a template of the command uses the field.
func mentions(argv []string, field string) bool {
	for _, arg := range argv {
		t, err := template.New("arg").Parse(arg)
		if err == nil && t.Tree != nil && uses(t.Root, field) {
			return true
		}
	}
	return false
}

// uses reports whether the tree of a template contains the field.
func uses(n parse.Node, field string) bool {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return false
		}
		for _, c := range n.Nodes {
			if uses(c, field) {
				return true
			}
		}
	case *parse.ActionNode:
		return uses(n.Pipe, field)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			for _, arg := range c.Args {
				if uses(arg, field) {
					return true
				}
			}
		}
	case *parse.FieldNode:
		return len(n.Ident) > 0 && n.Ident[0] == field
	}
	return false
}

// sessionID returns the session id of a run, in the form of a random UUID. It is derived from the
// run, so that it is the same after a restart, and different for each generation.
func sessionID(run string, generation int) string {
	sum := sha256.Sum256([]byte("tideover session " + run + " " + strconv.Itoa(generation)))
	sum[6] = sum[6]&0x0f | 0x40
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
