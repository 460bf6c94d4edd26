package pages

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// Limits of the table of operations, unless the page shows all. Operations that have failed or
// have not ended come first.
const (
	shownOps   = 100 // operations that the function has called itself
	shownItems = 20  // items of a map
)

// flow has the function of a run whose workflow is code, and its operations.
type flow struct {
	Function Step
	Calls    string // how often the function was called
	Troubled bool   // a call of the function failed, or it waits for other code
	Counts   string // numbers of the operations, in words
	Omitted  int    // operations that the engine does not list
	Ops      []opRow
	Hidden   int    // operations that are not shown
	Title    string // of the table
	InFile   bool   // the operations are steps of the file
}

// opRow is a row of the table of operations.
type opRow struct {
	engine.StepInfo
	Label  string // its name as it is shown
	Word   string // its kind as it is shown
	ID     string // of the HTML element
	Item   bool
	Brief  bool   // it was skipped, has not begun, or succeeded at its first attempt: the details open on a click
	Counts string // of a map: the numbers of its items, in words
	Took   time.Duration
	Until  *time.Time // of an operation that waits until a time
	Short  string     // the output on one line
	Long   bool       // Short is not the whole output
	Answer *answered  // of an operation that asks
	Tries  []Attempt
	Single *Output // output of the only attempt, if Tries does not have it
	Hidden int     // of a map: items that are not shown; they follow the last row

	ChildURL string // page of the run that the operation has started
}

// newFlow returns the part of the page of a run with its operations. steps are those of a workflow of
// the file, else nil.
func newFlow(i *engine.Info, function *engine.StepInfo, ops []control.Operation, steps []control.FileStep, all bool) *flow {
	f := &flow{Function: NewStep(function, 0, all), Title: "Operations"}
	f.Function.Brief = false
	calls := len(function.Attempts) + function.Omitted
	f.Calls = textfmt.Plural(calls, "call")
	f.Troubled = function.Status == "needs-handler" || slices.ContainsFunc(function.Attempts, func(a engine.AttemptInfo) bool { return isTrouble(&a) })
	if i.Operations != nil {
		f.Counts, f.Omitted = control.CountsText(i.Operations, "operation"), i.Operations.Omitted
	}
	if steps != nil {
		f.InFile, f.Title, f.Counts = true, "Steps", control.StepCountsText(steps)
	}
	shown := ops
	if n := len(ops) - shownOps; n > 0 && !all {
		shown, f.Hidden = latestOps(ops, shownOps), n
	}
	for k := range shown {
		f.addRows(&shown[k], all)
	}
	f.setUndone(steps)
	return f
}

// setUndone gives the last execution of a step that was undone the state of the step, as in its graph.
func (f *flow) setUndone(steps []control.FileStep) {
	states := map[string]string{}
	for k := range steps {
		if last := steps[k].Last(); last != nil {
			states[opID(last)] = steps[k].Status
		}
	}
	for k := range f.Ops {
		if row := &f.Ops[k]; strings.HasPrefix(states[row.ID], "undo") {
			row.Status = states[row.ID]
		}
	}
}

// latestOps returns n operations in their order: those that have failed or have not ended, then the
// last ones of those that have ended, then the next steps of the file that have not begun.
func latestOps(ops []control.Operation, n int) []control.Operation {
	var open, ended, next []int // indexes, the most wanted first
	for k := range ops {
		switch ops[k].Status {
		case control.StepNotBegun:
			next = append(next, k)
		case "succeeded", "skipped":
			ended = append(ended, k)
		default:
			open = append(open, k)
		}
	}
	slices.Reverse(open)
	slices.Reverse(ended)
	chosen := slices.Concat(open, ended, next)
	chosen = chosen[:min(n, len(chosen))]
	slices.Sort(chosen)
	list := make([]control.Operation, len(chosen))
	for i, k := range chosen {
		list[i] = ops[k]
	}
	return list
}

// addRows adds the rows of an operation and its items.
func (f *flow) addRows(o *control.Operation, all bool) {
	row := newOpRow(o, false)
	items := o.Items
	if n := len(items) - shownItems; n > 0 && !all {
		items, row.Hidden = items[:shownItems], n
	}
	if o.StepInfo.Items != nil {
		row.Counts = control.CountsText(o.StepInfo.Items, "item")
		row.Hidden += o.StepInfo.Items.Omitted
	}
	f.Ops = append(f.Ops, row)
	for k := range items {
		f.Ops = append(f.Ops, newOpRow(&items[k], true))
	}
}

// opID returns the id of the HTML element of an operation.
func opID(o *control.Operation) string { return "op-" + strconv.Itoa(o.Number) + "-" + Hash(o.Name, 6) }

const (
	shortOutput = 72       // characters of an output in the table of operations
	longOutput  = 16 << 10 // bytes of the longest output that the page has as a whole
)

func newOpRow(o *control.Operation, item bool) opRow {
	row := opRow{StepInfo: *o.StepInfo, Label: o.Label, Word: o.Word, ID: opID(o), Until: control.Until(o.StepInfo), Item: item || o.Kind == "item", ChildURL: RunURL(o.Child), Answer: newAnswered(o.StepInfo)}
	if row.Ended = endOf(o); o.Called != nil && row.Ended != nil {
		row.Took = max(row.Ended.Sub(*o.Called), 0)
	}
	row.Brief = isBrief(o)
	if o.Status == "skipped" {
		row.Called, row.Ended = nil, nil
	}
	row.setOutput(o)
	if v := NewStep(o.StepInfo, 0, false); len(v.Attempts) > 1 || len(v.Attempts) == 1 && v.Attempts[0].Wait != nil {
		row.Tries = v.Attempts
		for k := range row.Tries {
			row.Tries[k].ID = row.ID + "-a" + strconv.Itoa(row.Tries[k].Number)
		}
	}
	return row
}

// setOutput sets how the row shows the output of the operation.
func (row *opRow) setOutput(o *control.Operation) {
	if o.Kind != "undo" { // its result is null
		row.Short = firstLine(string(o.Output), shortOutput)
	}
	row.Long = row.Short != "" && len(o.Output) > len(row.Short) && len(o.Output) <= longOutput && !row.Item
	if o.OutputSize > 0 {
		row.Short = fmt.Sprintf("(%d bytes)", o.OutputSize)
	} else if len(o.Output) > longOutput {
		row.Short += fmt.Sprintf(" (%d bytes)", len(o.Output))
	}
}

// isBrief reports whether the row of an operation is one line at first.
func isBrief(o *control.Operation) bool {
	if o.Status == "skipped" || o.Status == control.StepNotBegun {
		return true
	}
	return succeededAtOnce(o.StepInfo) && o.StepInfo.Items == nil && o.Question == nil
}

// endOf returns when an operation ended. One that a retry of the run calls again has only attempts.
func endOf(o *control.Operation) *time.Time {
	if n := len(o.Attempts); o.Ended == nil && n > 0 && (o.Status == "succeeded" || o.Status == "failed") {
		return o.Attempts[n-1].Ended
	}
	return o.Ended
}

// maxLanes is how many operations the chart of a run shows.
const maxLanes = 24

// chartSteps returns the operations that the chart of a run has as lanes: the last ones that take time.
// A map is one lane with the attempts of all items.
func chartSteps(ops []control.Operation) (steps []engine.StepInfo) {
	for k := range ops {
		o := &ops[k]
		if o.Called == nil || o.Ended != nil && o.Ended.Equal(*o.Called) && len(o.Attempts) == 0 { // it ended with its call
			continue
		}
		s := *o.StepInfo
		if s.Name = o.Label; o.Kind == "undo" {
			s.Name = "undo " + o.Label
		}
		for _, item := range o.Items {
			for _, a := range item.Attempts {
				a.Wait = nil
				s.Attempts = append(s.Attempts, a)
			}
		}
		if len(o.Items) > 0 {
			slices.SortStableFunc(s.Attempts, func(a, b engine.AttemptInfo) int { return a.Started.Compare(b.Started) })
		}
		steps = append(steps, s)
	}
	return steps[max(len(steps)-maxLanes, 0):]
}
