package control

import (
	"strings"

	"github.com/tideover/tideover/engine"
)

// States of steps as they are shown, beside those that the engine has.
const (
	StepNotBegun   = "not-begun" // also of a step that the engine calls blocked; see [StateOf]
	StepUndoing    = "undoing"
	StepUndone     = "undone"
	StepUndoFailed = "undo-failed"
)

// StateOf returns the state of a step or an operation as it is shown. A step that never ran has not
// begun, also if its run was canceled before.
func StateOf(s *engine.StepInfo) string {
	switch {
	case s.Kind == "function" && s.Status == "blocked":
		return "suspended" // until operations end
	case s.Kind == "" && (s.Status == "blocked" || s.Status == "canceled" && len(s.Attempts)+s.Omitted == 0):
		return StepNotBegun
	}
	return s.Status
}

// FileStep is a step of a workflow of the file that runs as code.
type FileStep struct {
	engine.DeclaredOp
	Status string
	Ops    []Operation // its executions, and the undo of each: more than one if a retry executed it again
}

// Last returns the last execution; nil if there is none.
func (s *FileStep) Last() *Operation {
	for k := len(s.Ops) - 1; k >= 0; k-- {
		if o := &s.Ops[k]; o.Kind != "undo" {
			return o
		}
	}
	return nil
}

// fileSteps returns the steps of a run whose workflow is in the file. See [Operations].
func fileSteps(i *engine.Info, ops []Operation) []FileStep {
	steps := make([]FileStep, len(i.Declared))
	index := make(map[string]int, len(steps))
	for k, d := range i.Declared {
		steps[k] = FileStep{DeclaredOp: d, Status: StepNotBegun}
		index[d.Name] = k
	}
	for k := range ops {
		o := ops[k]
		if at, known := index[o.step()]; known {
			o.name(&steps[at].DeclaredOp)
			steps[at].Ops = append(steps[at].Ops, o)
		}
	}
	for k := range steps {
		steps[k].setStatus()
	}
	if i.Operations != nil && i.Operations.Omitted > 0 {
		inferUnlisted(i, steps, index)
	}
	return steps
}

// step returns the name of the step that the operation belongs to.
func (o *Operation) step() string {
	name := o.Name
	if o.Kind == "await" { // SIGNAL[STEP]
		_, key, _ := strings.Cut(name, "[")
		return strings.TrimSuffix(key, "]")
	}
	name, _, _ = strings.Cut(name, "#")
	return name
}

// name sets how the operation and its items are shown to a user who knows the steps of the file.
func (o *Operation) name(d *engine.DeclaredOp) {
	o.Word = d.Kind
	switch o.Kind {
	case "map", "children":
		for k := range o.Items {
			o.Items[k].Word = d.Kind
		}
		o.Word += " for-each"
	case "await":
		event, _, _ := strings.Cut(o.Name, "[")
		o.Label, o.Word = d.Name, d.Kind+" "+event
	case "undo":
		o.Word = "undo"
	}
}

// setStatus sets the status from that of the last execution and of its undos.
func (s *FileStep) setStatus() {
	last := s.Last()
	if last == nil {
		return
	}
	s.Status = last.Status
	undos, open, failed := 0, 0, 0
	for k := range s.Ops {
		o := &s.Ops[k]
		if o.Kind != "undo" || o.Number < last.Number {
			continue
		}
		undos++
		switch o.Status {
		case "succeeded":
		case "failed":
			failed++
		default:
			open++
		}
	}
	switch {
	case failed > 0:
		s.Status = StepUndoFailed
	case open > 0:
		s.Status = StepUndoing
	case undos > 0:
		s.Status = StepUndone
	}
}

// inferUnlisted sets the status of steps that have succeeded and are not listed, because the run has
// too many operations: the run has succeeded, or a step that needs them has begun.
func inferUnlisted(i *engine.Info, steps []FileStep, index map[string]int) {
	ended := func(s *FileStep) {
		if s.Status == StepNotBegun {
			s.Status = "succeeded"
		}
	}
	for k := range steps {
		if i.State == engine.StateSucceeded {
			ended(&steps[k])
		}
		if steps[k].Status == StepNotBegun {
			continue
		}
		open := steps[k].Needs
		for seen := map[string]bool{}; len(open) > 0; {
			at, known := index[open[0]]
			if open = open[1:]; known && !seen[steps[at].Name] {
				seen[steps[at].Name] = true
				ended(&steps[at])
				open = append(open, steps[at].Needs...)
			}
		}
	}
}
