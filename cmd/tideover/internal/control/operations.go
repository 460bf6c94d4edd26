package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

// Operation is an operation of a run whose workflow is code. Items has the operations of a map:
// first those that have failed, then those that have not ended, then the others.
type Operation struct {
	*engine.StepInfo
	Items []Operation
}

// Operations returns the function of a run whose workflow is code, and its operations as a tree,
// in the order in which they were called. function is nil for a run of a workflow with steps.
func Operations(i *engine.Info) (function *engine.StepInfo, ops []Operation) {
	maps := map[string]int{} // index in ops, by name
	for k := range i.Steps {
		s := &i.Steps[k]
		switch s.Kind {
		case "":
			return nil, nil
		case "function":
			function = s
			continue
		case "map", "children":
			maps[s.Name] = len(ops)
		case "item", "child":
			name := s.Name[:max(strings.LastIndexByte(s.Name, '#'), 0)]
			if at, listed := maps[name]; listed {
				ops[at].Items = append(ops[at].Items, Operation{StepInfo: s})
				continue
			}
		}
		ops = append(ops, Operation{StepInfo: s})
	}
	for k := range ops {
		slices.SortStableFunc(ops[k].Items, func(a, b Operation) int { return cmp.Compare(a.rank(), b.rank()) })
	}
	return function, ops
}

// rank is the rank of an item in the list of a map's items.
func (o *Operation) rank() int {
	switch o.Status {
	case "failed":
		return 0
	case "succeeded":
		return 2
	}
	return 1
}

// CountsText describes the numbers of operations, such as "4 items: 3 succeeded, 1 failed". noun
// is a singular.
func CountsText(c *engine.OpCounts, noun string) string {
	left := c.Total
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{c.Succeeded, "succeeded"}, {c.Failed, "failed"}, {c.Running, "running"}, {c.Waiting, "waiting"}, {c.Canceled, "canceled"},
	} {
		if left -= p.n; p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("%d not begun", left))
	}
	text := textfmt.Plural(c.Total, noun)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// TagList returns the tags of a run as texts like name=value, ordered by name.
func TagList(i *engine.Info) (list []string) {
	for name, value := range i.Tags {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}
