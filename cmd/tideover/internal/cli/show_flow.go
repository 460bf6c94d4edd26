package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// shownItems is how many items of a map are shown that have succeeded.
const shownItems = 5

// flow adds the function of a run whose workflow is code, and its operations. The function of a
// workflow of the file is left out: it has only the steps, which are nil for other workflows.
func (p *runDetails) flow(function *engine.StepInfo, ops []control.Operation, steps []control.FileStep) {
	counts := p.info.Operations
	if steps != nil {
		p.line("\n%s  %s", p.paint("1", "steps"), control.StepCountsText(steps))
	} else {
		p.step(p.withoutSuspensions(function))
		if counts == nil || counts.Total == 0 {
			return
		}
		p.line("\n%s  %s", p.paint("1", "operations"), control.CountsText(counts, "operation"))
	}
	if counts != nil && counts.Omitted > 0 {
		p.line("  %s", p.paint("2", textfmt.Plural(counts.Omitted, "operation")+" not listed: of many, those that failed or have not ended, and the first and the last of the others are listed"))
	}
	for k := range ops {
		p.operation(&ops[k], "  ")
	}
}

// withoutSuspensions returns the function without the calls that ended because it waits for
// operations. Such calls are normal, so a line only counts them.
func (p *runDetails) withoutSuspensions(function *engine.StepInfo) *engine.StepInfo {
	f := *function
	f.Attempts = nil
	for _, a := range function.Attempts {
		if a.Outcome != "suspended" {
			a.Omitted = 0
			f.Attempts = append(f.Attempts, a)
		}
	}
	f.Output = nil // it is the output of the run
	return &f
}

// state returns the state of a step or an operation.
func (p *runDetails) state(s *engine.StepInfo) string {
	state := control.StateOf(s)
	return p.paint(stateColours[state], visible(control.StateText(state)))
}

// operation adds an operation, and the items of a map.
func (p *runDetails) operation(o *control.Operation, indent string) {
	text := indent + p.paint("1", visible(o.Label))
	if o.Item != "" {
		text += " (" + visible(firstLine(o.Item)) + ")"
	}
	if o.Kind != "item" {
		text += "  " + p.paint("2", visible(o.Word))
	}
	if o.Items == nil && o.StepInfo.Items == nil {
		text += "  " + p.state(o.StepInfo)
	}
	p.line("%s%s", text, p.result(o))
	for k := range o.Attempts {
		if a := &o.Attempts[k]; len(o.Attempts) > 1 || a.Wait != nil || a.Outcome == "running" {
			p.indented(indent, func() { p.attempt(a) })
		}
	}
	p.items(o, indent+"  ")
}

// indented calls add, and indents the lines that it adds.
func (p *details) indented(indent string, add func()) {
	from := len(p.lines)
	add()
	for k := range p.lines[from:] {
		p.lines[from+k] = indent + p.lines[from+k]
	}
}

// result describes when an operation was called, how long it took, and what it returned.
func (p *runDetails) result(o *control.Operation) string {
	if o.StepInfo.Items != nil {
		return "  " + control.CountsText(o.StepInfo.Items, "item")
	}
	var b strings.Builder
	if o.Status == "skipped" {
		return ""
	}
	if o.Called != nil {
		b.WriteString("  " + p.clock(*o.Called))
		switch {
		case o.Ended != nil:
			b.WriteString(" after " + textfmt.CoarseDuration(o.Ended.Sub(*o.Called)))
		case control.Until(o.StepInfo) != nil:
			b.WriteString(" until " + p.moment(o.Next))
		case !p.info.Finished():
			b.WriteString(" for " + textfmt.CoarseDuration(max(p.now.Sub(*o.Called), time.Duration(0))))
		}
	}
	if o.Child != "" {
		b.WriteString("  run " + visible(o.Child))
	}
	b.WriteString(returned(o))
	return b.String()
}

// returned describes what an operation returned: an answer, an error or its output; "" for nothing.
func returned(o *control.Operation) string {
	switch answer := answerLine(o.StepInfo); {
	case answer != "":
		return "  " + answer
	case o.Error != "" && o.Code != "":
		return ": " + visible(textfmt.ClipWithin(firstLine(o.Error), 200, "…")) + " (" + visible(o.Code) + ")"
	case o.Error != "":
		return ": " + visible(textfmt.ClipWithin(firstLine(o.Error), 200, "…"))
	case o.OutputSize > 0:
		return "  returned " + strconv.Itoa(o.OutputSize) + " bytes, which are not shown"
	case len(o.Output) > 0 && o.Kind != "undo": // its result is null
		return "  returned " + visible(textfmt.ClipWithin(string(o.Output), 100, "…"))
	}
	return ""
}

// items adds the items of a map: all that failed or have not ended, and a few of the others.
func (p *runDetails) items(o *control.Operation, indent string) {
	shown, left := 0, 0
	for k := range o.Items {
		item := &o.Items[k]
		if item.Status == "succeeded" {
			if shown++; shown > shownItems {
				left++
				continue
			}
		}
		p.operation(item, indent)
	}
	if o.StepInfo.Items != nil {
		left += o.StepInfo.Items.Omitted
	}
	if left > 0 {
		p.line("%s%s", indent, p.paint("2", "… "+textfmt.Plural(left, "more item")+"; the output of one: tideover show "+p.info.ID+" --output --step "+visible(o.Name)+"#INDEX"))
	}
}
