package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

// Operation is an operation of a run whose workflow is code. Items has the operations of a map:
// first those that have failed, then those that have not ended, then the others.
type Operation struct {
	*engine.StepInfo
	Label string // its name as it is shown
	Word  string // its kind as it is shown
	Items []Operation
}

// Operations returns the function of a run whose workflow is code, and its operations as a tree.
// function is nil for a run of a workflow with steps. The operations are in the order in which they
// were called.
//
// If the workflow is in the file, inFile has its steps in the order of the file, with those that were
// skipped or have not begun, else it is nil. The operations are then in the order of the steps, with
// one operation in the state [StepNotBegun] for each step that has not begun.
func Operations(i *engine.Info) (function *engine.StepInfo, ops []Operation, inFile []FileStep) {
	function, called := operations(i)
	if function == nil || len(i.Declared) == 0 {
		return function, called, nil
	}
	inFile = fileSteps(i, called)
	for k := range inFile {
		s := &inFile[k]
		if ops = append(ops, s.Ops...); len(s.Ops) == 0 {
			ops = append(ops, Operation{StepInfo: &engine.StepInfo{Name: s.Name, Status: s.Status}, Label: s.Name, Word: s.Kind})
		}
	}
	return function, ops, inFile
}

// operations returns the function and the operations in the order in which they were called.
func operations(i *engine.Info) (function *engine.StepInfo, ops []Operation) {
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
				ops[at].Items = append(ops[at].Items, Operation{StepInfo: s, Label: s.Name, Word: s.Kind})
				continue
			}
		}
		ops = append(ops, Operation{StepInfo: s, Label: s.Name, Word: s.Kind})
	}
	for k := range ops {
		slices.SortStableFunc(ops[k].Items, func(a, b Operation) int { return cmp.Compare(a.rank(), b.rank()) })
	}
	return function, ops
}

// wait says what an operation waits for that has no attempts.
type wait struct {
	text     string // the beginning of a sentence about its end, with a place for the name of the operation
	bySignal bool   // only a signal or an answer ends it early
}

// waits has the kinds of operations that wait until a time. Others wait for the next attempt, or for a child.
var waits = map[string]wait{
	"sleep": {"The sleep %s ends", false},
	"await": {"The wait for the signal %s ends", true},
	"ask":   {"The time for an answer to %s ends", true},
}

// Until returns until when an operation without attempts waits; nil for others.
func Until(s *engine.StepInfo) *time.Time {
	if !Waits(s) {
		return nil
	}
	return s.Next
}

// Waits reports whether an operation has no attempts, and waits for a time, a signal or an answer.
func Waits(s *engine.StepInfo) bool {
	_, ok := waits[s.Kind]
	return ok
}

// NextWait returns what a run waits for until its next time, as the beginning of a sentence about its end.
// bySignal says that only a signal or an answer ends the wait early.
func NextWait(i *engine.Info) (text string, bySignal bool) {
	for k := range i.Steps {
		if s := &i.Steps[k]; s.Kind != "function" && s.Next != nil && i.Next != nil && s.Next.Equal(*i.Next) {
			if w, ok := waits[s.Kind]; ok {
				return fmt.Sprintf(w.text, s.Name), w.bySignal
			}
			break
		}
	}
	return "Next attempt", false
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
		{c.Succeeded, "succeeded"}, {c.Failed, "failed"}, {c.Running, "running"}, {c.Waiting, "waiting"}, {c.Canceled, "canceled"}, {c.Skipped, "skipped"},
	} {
		if left -= p.n; p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("%d %s", left, StateText(StepNotBegun)))
	}
	text := textfmt.Plural(c.Total, noun)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// StepCountsText describes the numbers of the steps of a file, such as "3 steps: 1 succeeded, 2 not
// begun".
func StepCountsText(steps []FileStep) string {
	count := map[string]int{}
	for k := range steps {
		count[steps[k].Status]++
	}
	var parts []string
	for _, state := range StepStates {
		if n := count[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, StateText(state)))
		}
	}
	return textfmt.Plural(len(steps), "step") + ": " + strings.Join(parts, ", ")
}

// StepStates has the states of steps in the order in which they are counted.
var StepStates = []string{
	"succeeded", "skipped", "running", "waiting", "needs-handler", "failed", "canceled", StepUndoing, StepUndone, StepUndoFailed, StepNotBegun,
}

// StateText returns the name of a state as it is shown.
func StateText(state string) string { return strings.ReplaceAll(state, "-", " ") }

// TagList returns the tags of a run as texts like name=value, ordered by name.
func TagList(i *engine.Info) (list []string) {
	for name, value := range i.Tags {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}
